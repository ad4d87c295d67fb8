"""Courses as in the BARN dataset: a field of cells, grown by a cellular automaton, across a corridor.

D. Perille, A. Truong, X. Xiao, P. Stone, "Benchmarking Metric Ground Navigation", SSRR 2020, and the generator that
they published. Each cell of the field is filled with probability ``fill``, the two rows along the corridor's sides
always; then, ``smoothing`` times, a cell with more than 4 filled neighbours of its 8 is filled and one with fewer than
2 is emptied, where what lies beyond the sides counts as filled and what lies beyond the ends as empty. A field that
cannot be crossed is drawn anew with the same two numbers.

Ours differs in four things. ``fill`` is any number of its range instead of one of four. A field can be crossed when a
square of whole cells, at least ``gap`` wide, can be slid from end to end: three cells of 0.15 m for our disc of 0.40 m,
more for the dataset's larger robot. Filled cells become boxes of many cells instead of a post each. Start and goal lie
anywhere in the free bays at the ends.
"""

# Kernels are not quite Python: a variable that a loop changes is declared by int(0), and array types are calls.
# mypy: disable-error-code="valid-type,operator,arg-type,call-overload,attr-defined,misc,assignment"

import math

import torch
import warp as wp

from navtask import random
from navtask.nav.config import RoomsConfig
from navtask.nav.parking import park
from navtask.nav.robot import ROBOT

wp.set_module_options({"enable_backward": False})

NONE = wp.constant(wp.uint32(0))
ONE = wp.constant(wp.uint32(1))


@wp.struct
class Course:
    """The numbers of RoomsConfig, as the kernel takes them. A column of cells, across the corridor, is one word."""

    half_x: float
    half_y: float
    cell: float
    columns: int
    rows: int
    window: int
    """Cells along a side of the square that must get through."""
    fill_min: float
    fill_max: float
    smoothing_min: int
    smoothing_max: int
    fewest: int
    most: int
    clearance: float
    goal_distance: float
    tries: int


def course(config: RoomsConfig) -> Course:
    """Pack a config for the kernel."""
    automaton = config.automaton
    assert automaton is not None
    c = Course()
    c.half_x, c.half_y = config.size[0] / 2, config.size[1] / 2
    c.cell = automaton.cell
    c.columns = automaton.columns
    c.rows = round(config.size[1] / automaton.cell)
    c.window = math.ceil(config.gap / automaton.cell - 1e-6)
    c.fill_min, c.fill_max = automaton.fill
    c.smoothing_min, c.smoothing_max = automaton.smoothing
    c.fewest, c.most = config.obstacles
    c.clearance = ROBOT.radius + config.margin
    c.goal_distance = config.goal_distance
    c.tries = config.tries
    return c


@wp.func
def lowest(count: int) -> wp.uint32:
    """A word with so many of its lowest bits set, 0 to 32."""
    if count >= 32:
        return ~NONE
    return (ONE << wp.uint32(count)) - ONE


@wp.func
def sow(room: int, key: random.Key, attempt: int, fill: float, course: Course, cells: wp.array2d(dtype=wp.uint32)):
    """Fill cells at random, and both sides."""
    words = (course.rows + 3) // 4
    sides = ONE | (ONE << wp.uint32(course.rows - 1))
    for x in range(course.columns):
        column = sides
        for k in range(words):
            u = random.uniform4(key, random.OBSTACLES, 1 + (attempt * course.columns + x) * words + k)
            for i in range(4):
                if u[i] < fill:
                    column = column | (ONE << wp.uint32(4 * k + i))
        cells[room, x] = column & lowest(course.rows)


@wp.func
def smooth(room: int, course: Course, cells: wp.array2d(dtype=wp.uint32)):
    """One step of the automaton, all cells at once: neighbours are counted in binary, one bit of each count a word."""
    top = wp.uint32(course.rows - 1)
    before = NONE  # the column to the left, as it was
    for x in range(course.columns):
        here = cells[room, x]
        after = NONE
        if x + 1 < course.columns:
            after = cells[room, x + 1]
        ones = NONE
        twos = NONE
        fours = NONE
        eights = NONE
        for side in range(3):
            column = here
            if side == 0:
                column = before
            elif side == 2:
                column = after
            # The neighbours below, above and (but for the cell itself) level; beyond the sides all is filled.
            for shift in range(3):
                if side != 1 or shift != 2:
                    add = column
                    if shift == 0:
                        add = (column << ONE) | ONE
                    elif shift == 1:
                        add = (column >> ONE) | (ONE << top)
                    carry = ones & add
                    ones = ones ^ add
                    add = twos & carry
                    twos = twos ^ carry
                    carry = fours & add
                    fours = fours ^ add
                    eights = eights | carry
        more_than_four = eights | (fours & (twos | ones))
        fewer_than_two = ~(eights | fours | twos)
        cells[room, x] = (more_than_four | (here & ~fewer_than_two)) & lowest(course.rows)
        before = here


@wp.func
def crossable(
    room: int,
    course: Course,
    cells: wp.array2d(dtype=wp.uint32),
    free: wp.array2d(dtype=wp.uint32),
    reached: wp.array2d(dtype=wp.uint32),
) -> bool:
    """Whether the window can be slid, along rows and columns, from the first columns to the last."""
    last = course.columns - course.window
    for x in range(last + 1):
        filled = NONE
        for i in range(course.window):
            filled = filled | cells[room, x + i]
        blocked = NONE
        for i in range(course.window):
            blocked = blocked | (filled >> wp.uint32(i))
        free[room, x] = ~blocked & lowest(course.rows - course.window + 1)
        reached[room, x] = NONE
    reached[room, 0] = free[room, 0]
    spreading = bool(True)
    backward = bool(False)
    while spreading and reached[room, last] == NONE:
        spreading = bool(False)
        for k in range(last + 1):
            x = k
            if backward:
                x = last - k
            old = reached[room, x]
            now = old
            if x > 0:
                now = now | reached[room, x - 1]
            if x < last:
                now = now | reached[room, x + 1]
            now = now & free[room, x]
            grown = (now | (now << ONE) | (now >> ONE)) & free[room, x]
            while grown != now:
                now = grown
                grown = (now | (now << ONE) | (now >> ONE)) & free[room, x]
            if now != old:
                spreading = bool(True)
                reached[room, x] = now
        backward = not backward
    return reached[room, last] != NONE


@wp.func
def lay_boxes(
    room: int,
    course: Course,
    cells: wp.array2d(dtype=wp.uint32),
    left: wp.array2d(dtype=wp.uint32),
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
) -> int:
    """Cover the filled cells, and only these, with boxes: a run of cells in a column, widened over the columns that
    follow as far as they hold it. Returns how many it takes; what the slots cannot hold is left out."""
    for x in range(course.columns):
        left[room, x] = cells[room, x]
    slots = centre.shape[1]
    count = int(0)
    for x in range(course.columns):
        while left[room, x] != NONE:
            column = left[room, x]
            # Adding the lowest bit carries through the lowest run.
            run = column & ~(column + (column & (~column + ONE)))
            end = int(x)
            while end < course.columns and (left[room, wp.min(end, course.columns - 1)] & run) == run:
                left[room, end] = left[room, end] & ~run
                end += 1
            low = int(0)
            while ((run >> wp.uint32(low)) & ONE) == NONE:
                low += 1
            high = int(low)
            while high < course.rows and ((run >> wp.uint32(high)) & ONE) != NONE:
                high += 1
            if count < slots:
                centre[room, count] = wp.vec2(
                    0.5 * float(x + end - course.columns) * course.cell,
                    0.5 * float(low + high - course.rows) * course.cell,
                )
                half[room, count] = wp.vec2(0.5 * float(end - x) * course.cell, 0.5 * float(high - low) * course.cell)
                axis[room, count] = wp.vec2(1.0, 0.0)
            count += 1
    for slot in range(wp.min(count, slots), slots):
        park(room, slot, centre, half, axis)
    return count


@wp.kernel
def draw_courses(
    # whose rooms
    mask: wp.array(dtype=wp.bool),
    episode: wp.array(dtype=wp.int32),
    source: random.Source,
    course: Course,
    # scratch: columns of cells
    cells: wp.array2d(dtype=wp.uint32),
    scratch: wp.array2d(dtype=wp.uint32),
    reached: wp.array2d(dtype=wp.uint32),
    # out
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
    start: wp.array(dtype=wp.vec3),
    goal: wp.array(dtype=wp.vec2),
    failures: wp.array(dtype=wp.int32),
):
    """Draw the masked rooms anew: fields until one can be crossed and its boxes fit the slots, then start and goal."""
    room = wp.tid()
    if not mask[room]:
        return
    key = random.key(source, room, episode[room])

    u = random.uniform4(key, random.OBSTACLES, 0)
    fill = wp.lerp(course.fill_min, course.fill_max, u[0])
    smoothing = course.smoothing_min + int(u[1] * float(course.smoothing_max - course.smoothing_min + 1))
    found = bool(False)
    attempt = int(0)
    while not found and attempt < course.tries:
        sow(room, key, attempt, fill, course, cells)
        for _ in range(smoothing):
            smooth(room, course, cells)
        if crossable(room, course, cells, scratch, reached):
            count = lay_boxes(room, course, cells, scratch, centre, half, axis)
            found = count >= course.fewest and count <= course.most
        attempt += 1
    if not found:
        # A straight lane is cleared along the middle.
        failures[room] = failures[room] + 1
        lane = lowest(course.window) << wp.uint32((course.rows - course.window) // 2)
        for x in range(course.columns):
            cells[room, x] = cells[room, x] & ~lane
        lay_boxes(room, course, cells, scratch, centre, half, axis)

    # The start lies in the bay before the field, the goal in the one behind it; at worst at their far ends.
    bay_far = course.half_x - course.clearance
    bay_near = 0.5 * float(course.columns) * course.cell + course.clearance
    inner_y = course.half_y - course.clearance
    s = wp.vec2(-bay_far, 0.0)
    g = wp.vec2(bay_far, 0.0)
    found = bool(False)
    attempt = int(0)
    while not found and attempt < course.tries:
        u = random.uniform4(key, random.PLACES, 1 + attempt)
        s = wp.vec2(-wp.lerp(bay_near, bay_far, u[0]), (2.0 * u[1] - 1.0) * inner_y)
        g = wp.vec2(wp.lerp(bay_near, bay_far, u[2]), (2.0 * u[3] - 1.0) * inner_y)
        found = wp.length(g - s) >= course.goal_distance
        attempt += 1
    if not found:
        failures[room] = failures[room] + 1
        s = wp.vec2(-bay_far, 0.0)
        g = wp.vec2(bay_far, 0.0)
    u = random.uniform4(key, random.PLACES, 0)
    start[room] = wp.vec3(s[0], s[1], wp.pi * (2.0 * u[0] - 1.0))
    goal[room] = g


def scratch(num: int, config: RoomsConfig, device: torch.device) -> list[wp.array]:
    """What ``draw_courses`` works in, for ``num`` rooms."""
    assert config.automaton is not None
    return [wp.zeros((num, config.automaton.columns), dtype=wp.uint32, device=str(device)) for _ in range(3)]
