"""Length of the shortest way from start to goal, on a grid inflated by the robot's radius.

Where the straight line is free its length is the answer. Elsewhere the eikonal equation |grad T| = 1, T = 0 at the
goal, is solved by fast sweeping with Godunov's upwind differences (H. Zhao, "A fast sweeping method for eikonal
equations", Math. Comp. 74, 2005), visiting only cells next to one that fell since (locking: S. Bak, J. McLaughlin,
D. Renzi, SIAM J. Sci. Comput. 32, 2010), and none through which the way would be longer than one found. The way down T
is then drawn taut between the obstacles themselves, and its length is the answer.

Accuracy: the grid decides which way round, so a length is off by more than a centimetre only where two ways are about
equally long, or where the shortest leads through a passage that leaves the robot's centre less than about two
cells: the way round is then taken. Lengths are never too short but for rounding. Against a grid four times as fine,
0.05 m is too long by 0.02 % in the mean on open rooms and 0.06 % on dense ones, by under 0.4 % and 1.3 % in 99 rooms of
100, and by 6 % in the worst of 1,000 dense ones. In a field of cells the robot may fit between two corners with
a centimetre to spare: there 0.05 m is too long by 0.8 % in the mean and by half in the worst of 300, and a tenth of a
cell of 0.15 m by 0.02 % and 0.7 %.
"""

# Kernels are not quite Python: a variable that a loop changes is declared by int(0), `and` computes both sides, and
# array types are calls.
# ruff: noqa: SIM102
# mypy: disable-error-code="valid-type,operator,arg-type,call-overload,attr-defined,misc,assignment"

import hashlib
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import warp as wp

from navtask import cache
from navtask.kernels import start_warp
from navtask.nav.config import RoomsConfig
from navtask.nav.robot import ROBOT
from navtask.nav.scene import Rooms, Slots, distance_to_slot, reach_of_slot

wp.set_module_options({"enable_backward": False})

RESOLUTION = 0.05
"""Edge of a cell where obstacles are spread at random, m."""
VERSION = 2
"""Raise it when the lengths change: cached ones are then computed anew."""
FAR = wp.constant(1.0e9)
EXACT = wp.constant(1.0)  # radius about the goal, m, within which free straight lines give T

_LEGS = 62
LEGS = wp.constant(_LEGS)  # more than a way through a drawn room ever has
ROUNDS = wp.constant(20)  # of drawing the way taut
SLACK = wp.constant(1.0e-3)  # what a round must gain for another to follow, m

# What a cell is.
RESTING = wp.constant(wp.uint8(0))
WAITING = wp.constant(wp.uint8(1))  # a neighbour fell since the last visit
BLOCKED = wp.constant(wp.uint8(2))


@wp.func
def distance_to_segment(p: wp.vec2, a: wp.vec2, b: wp.vec2) -> float:
    """Distance from a point to the segment from a to b, m."""
    ab = b - a
    t = wp.clamp(wp.dot(p - a, ab) / wp.max(wp.dot(ab, ab), 1.0e-12), 0.0, 1.0)
    return wp.length(p - a - t * ab)


@wp.func
def segment_to_slot(s: wp.vec2, g: wp.vec2, is_box: bool, c: wp.vec2, h: wp.vec2, a: wp.vec2) -> float:
    """Distance from the segment s-g to an obstacle, m; 0 or less where it cuts through."""
    if not is_box:
        return distance_to_segment(c, s, g) - h[0]
    # In the frame of the box.
    p = wp.vec2(wp.dot(a, s - c), a[0] * (s[1] - c[1]) - a[1] * (s[0] - c[0]))
    q = wp.vec2(wp.dot(a, g - c), a[0] * (g[1] - c[1]) - a[1] * (g[0] - c[0]))
    # Separating axes of a segment and a box: the box's two and the segment's normal.
    d = q - p
    gap_x = wp.max(wp.min(p[0], q[0]) - h[0], -h[0] - wp.max(p[0], q[0]))
    gap_y = wp.max(wp.min(p[1], q[1]) - h[1], -h[1] - wp.max(p[1], q[1]))
    gap_n = wp.abs(p[0] * d[1] - p[1] * d[0]) - (h[0] * wp.abs(d[1]) + h[1] * wp.abs(d[0]))
    if wp.max(wp.max(gap_x, gap_y), gap_n) <= 0.0:
        return 0.0
    # Apart: an end of the segment and the box, or a corner of the box and the segment, are nearest.
    near = wp.min(distance_to_slot(s, True, c, h, a), distance_to_slot(g, True, c, h, a))
    near = wp.min(near, distance_to_segment(wp.vec2(h[0], h[1]), p, q))
    near = wp.min(near, distance_to_segment(wp.vec2(-h[0], h[1]), p, q))
    near = wp.min(near, distance_to_segment(wp.vec2(h[0], -h[1]), p, q))
    return wp.min(near, distance_to_segment(wp.vec2(-h[0], -h[1]), p, q))


@wp.func
def line_is_free(
    s: wp.vec2,
    g: wp.vec2,
    radius: float,
    room: int,
    cylinders: int,
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
) -> bool:
    """Whether a disc can move straight from s to g. Walls are not asked: a room is convex."""
    for slot in range(centre.shape[1]):
        h = half[room, slot]
        if h[0] > 0.0:
            c = centre[room, slot]
            if distance_to_segment(c, s, g) - wp.length(h) < radius:
                if segment_to_slot(s, g, slot >= cylinders, c, h, axis[room, slot]) < radius:
                    return False
    return True


@wp.func
def wake(
    index: int,
    row: int,
    column: int,
    width: int,
    value: float,
    cell: wp.array2d(dtype=wp.uint8),
    time: wp.array2d(dtype=wp.float32),
    first: wp.array2d(dtype=wp.int32),
    last: wp.array2d(dtype=wp.int32),
):
    """Have a cell visited again if a neighbour's new value may lower it."""
    at = row * width + column
    if cell[index, at] == RESTING and time[index, at] > value:
        cell[index, at] = WAITING
        first[index, row] = wp.min(first[index, row], column)
        last[index, row] = wp.max(last[index, row], column)


@wp.func
def wake_around(
    index: int,
    row: int,
    column: int,
    width: int,
    cell: wp.array2d(dtype=wp.uint8),
    time: wp.array2d(dtype=wp.float32),
    first: wp.array2d(dtype=wp.int32),
    last: wp.array2d(dtype=wp.int32),
):
    """Wake the four neighbours of a cell whose value is new."""
    value = time[index, row * width + column]
    wake(index, row, column - 1, width, value, cell, time, first, last)
    wake(index, row, column + 1, width, value, cell, time, first, last)
    wake(index, row - 1, column, width, value, cell, time, first, last)
    wake(index, row + 1, column, width, value, cell, time, first, last)


@wp.func
def pull_taut(
    index: int,
    s: wp.vec2,
    g: wp.vec2,
    near: int,
    corner: wp.vec2,
    h: float,
    width: int,
    time: wp.array2d(dtype=wp.float32),
    way: wp.array2d(dtype=wp.vec2),
    radius: float,
    room: int,
    cylinders: int,
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
) -> float:
    """Length of the way down T from s to g, drawn taut: straight legs that the disc can drive, m."""
    # Down T from the best of the four cells about s, cell by cell. A new leg begins where the last one's first point
    # gets out of sight.
    at = near
    best = float(FAR)
    for k in range(4):
        candidate = near + k % 2 + (k // 2) * width
        p = corner + h * wp.vec2(float(candidate % width), float(candidate // width))
        if time[index, candidate] + wp.length(p - s) < best:
            best = time[index, candidate] + wp.length(p - s)
            at = candidate
    if best >= 0.5 * FAR:
        return wp.inf
    way[index, 0] = s
    count = int(1)
    last = s
    due = float(0.0)
    walking = bool(True)
    while walking:
        p = corner + h * wp.vec2(float(at % width), float(at // width))
        tied = way[index, count - 1]
        if count < LEGS:
            if not line_is_free(tied, p, radius, room, cylinders, centre, half, axis):
                if wp.length(last - tied) > 0.0:
                    way[index, count] = last
                    count += 1
        last = p
        if line_is_free(way[index, count - 1], g, radius, room, cylinders, centre, half, axis):
            walking = bool(False)
        else:
            # Against the gradient: to the lower neighbours along x and y, as often as T falls towards each.
            beside = wp.where(time[index, at - 1] < time[index, at + 1], at - 1, at + 1)
            above = wp.where(time[index, at - width] < time[index, at + width], at - width, at + width)
            fall_x = wp.max(time[index, at] - time[index, beside], 0.0)
            fall_y = wp.max(time[index, at] - time[index, above], 0.0)
            if fall_x + fall_y > 0.0:
                due += fall_x / (fall_x + fall_y)
                if fall_y == 0.0 or (fall_x > 0.0 and due >= 0.5):
                    at = beside
                    due -= 1.0
                else:
                    at = above
            else:  # the cell next to the goal
                way[index, count] = p
                count += 1
                walking = bool(False)
    way[index, count] = g
    if count >= LEGS:
        return best

    # Cut every bend as wide as the cut stays free, and the bends that this leaves, until nothing is gained.
    gained = float(FAR)
    rounds = int(0)
    while gained > SLACK and rounds < ROUNDS:
        gained = float(0.0)
        rounds += 1
        k = int(1)
        while k < count:
            a = way[index, k - 1]
            b = way[index, k + 1]
            bend = way[index, k]
            before = wp.length(a - bend)
            after = wp.length(b - bend)
            reach = wp.min(before, after)
            to_a = (a - bend) / wp.max(before, 1.0e-9)
            to_b = (b - bend) / wp.max(after, 1.0e-9)
            # A cut at distance e from the bend saves e times this.
            saving = 2.0 - wp.length(to_a - to_b)
            cut = reach
            tries = int(0)
            found = bool(False)
            while not found and tries < 7 and cut * saving > 0.1 * SLACK:
                if line_is_free(bend + cut * to_a, bend + cut * to_b, radius, room, cylinders, centre, half, axis):
                    found = bool(True)
                else:
                    cut = 0.5 * cut
                    tries += 1
            if reach < 1.0e-6:
                found = bool(True)
            if found:
                gained += cut * saving
                way[index, k] = bend + cut * wp.where(before < after, to_b, to_a)
                if tries > 0 and count < LEGS:
                    # Neither end of the cut is a neighbour: the bend becomes two.
                    for i in range(count - k + 1):
                        way[index, count + 1 - i] = way[index, count - i]
                    count += 1
                    way[index, k] = bend + cut * to_a
                    way[index, k + 1] = bend + cut * to_b
                    k += 1
                elif tries > 0:
                    way[index, k] = bend
            k += 1
    total = float(0.0)
    for k in range(count):
        total += wp.length(way[index, k + 1] - way[index, k])
    return total


@wp.kernel
def measure(
    # the rooms
    offset: int,
    room_half: wp.vec2,
    radius: float,
    cylinders: int,
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
    start: wp.array(dtype=wp.vec3),
    goal: wp.array(dtype=wp.vec2),
    # the grid
    h: float,
    width: int,
    height: int,
    # scratch: one grid a thread, the columns between which cells wait in each row, and the bends of the way
    time: wp.array2d(dtype=wp.float32),
    cell: wp.array2d(dtype=wp.uint8),
    first: wp.array2d(dtype=wp.int32),
    last: wp.array2d(dtype=wp.int32),
    way: wp.array2d(dtype=wp.vec2),
    # out
    length: wp.array(dtype=wp.float32),
):
    """Length of room ``offset + thread``; infinite where the goal cannot be reached."""
    index = wp.tid()
    room = offset + index
    s = wp.vec2(start[room][0], start[room][1])
    g = goal[room]
    if line_is_free(s, g, radius, room, cylinders, centre, half, axis):
        length[room] = wp.length(g - s)
        return

    # The centre of cell (row, column) lies at corner + h (column, row).
    corner = wp.vec2(-0.5 * float(width - 1) * h, -0.5 * float(height - 1) * h)
    for row in range(height):
        first[index, row] = width
        last[index, row] = -1
        y = corner[1] + h * float(row)
        outside = wp.abs(y) > room_half[1] - radius
        for column in range(width):
            time[index, row * width + column] = FAR
            x = corner[0] + h * float(column)
            cell[index, row * width + column] = RESTING
            if outside or wp.abs(x) > room_half[0] - radius:
                cell[index, row * width + column] = BLOCKED
    for slot in range(centre.shape[1]):
        size = half[room, slot]
        if size[0] > 0.0:
            c = centre[room, slot]
            a = axis[room, slot]
            is_box = slot >= cylinders
            reach = reach_of_slot(is_box, size, a)
            low = (c - reach - wp.vec2(radius, radius) - corner) / h
            high = (c + reach + wp.vec2(radius, radius) - corner) / h
            for row in range(wp.max(int(wp.floor(low[1])), 0), wp.min(int(wp.ceil(high[1])), height - 1) + 1):
                for column in range(wp.max(int(wp.floor(low[0])), 0), wp.min(int(wp.ceil(high[0])), width - 1) + 1):
                    p = corner + wp.vec2(h * float(column), h * float(row))
                    if distance_to_slot(p, is_box, c, size, a) < radius:
                        cell[index, row * width + column] = BLOCKED

    # Near the goal T is known: the distance, where the line is free.
    span = int(wp.ceil(wp.max(EXACT / h, 2.0)))
    at_row = int(wp.floor((g[1] - corner[1]) / h + 0.5))
    at_column = int(wp.floor((g[0] - corner[0]) / h + 0.5))
    for row in range(wp.max(at_row - span, 1), wp.min(at_row + span, height - 2) + 1):
        for column in range(wp.max(at_column - span, 1), wp.min(at_column + span, width - 2) + 1):
            at = row * width + column
            p = corner + wp.vec2(h * float(column), h * float(row))
            d = wp.length(p - g)
            if cell[index, at] != BLOCKED and d <= float(span) * h:
                if line_is_free(p, g, radius, room, cylinders, centre, half, axis):
                    time[index, at] = d
                    wake_around(index, row, column, width, cell, time, first, last)

    # The start lies among four cell centres.
    fx = (s[0] - corner[0]) / h
    fy = (s[1] - corner[1]) / h
    near = int(wp.floor(fy)) * width + int(wp.floor(fx))
    bound = float(FAR)
    waiting = bool(True)
    sweep = int(0)
    while waiting:
        waiting = bool(False)
        for r in range(height):
            row = r
            if (sweep // 2) % 2 == 1:
                row = height - 1 - r
            low_column = first[index, row]
            high_column = last[index, row]
            if low_column <= high_column:
                waiting = bool(True)
                first[index, row] = width
                last[index, row] = -1
                y = corner[1] + h * float(row) - s[1]
                onward = sweep % 2 == 0
                column = wp.where(onward, low_column, high_column)
                # Cells woken ahead within this row are taken along: the ends move while we walk.
                while column >= 1 and column < width - 1:
                    if onward and column > wp.max(high_column, last[index, row]):
                        break
                    if (not onward) and column < wp.min(low_column, first[index, row]):
                        break
                    at = row * width + column
                    if cell[index, at] == WAITING:
                        cell[index, at] = RESTING
                        tx = wp.min(time[index, at - 1], time[index, at + 1])
                        ty = wp.min(time[index, at - width], time[index, at + width])
                        # ((t - tx)+)^2 + ((t - ty)+)^2 = h^2, Zhao's equation (2.4).
                        t = wp.min(tx, ty) + h
                        if wp.abs(tx - ty) < h:
                            t = 0.5 * (tx + ty + wp.sqrt(2.0 * h * h - (tx - ty) * (tx - ty)))
                        if t < time[index, at]:
                            time[index, at] = t
                            # What is left is at least the straight line.
                            x = corner[0] + h * float(column) - s[0]
                            left = bound - t
                            if left > 0.0 and x * x + y * y < left * left:
                                wake_around(index, row, column, width, cell, time, first, last)
                    column += wp.where(onward, 1, -1)
        found = wp.max(
            wp.max(time[index, near], time[index, near + 1]),
            wp.max(time[index, near + width], time[index, near + width + 1]),
        )
        bound = wp.min(bound, found + 4.0 * h)
        sweep += 1

    length[room] = pull_taut(
        index, s, g, near, corner, h, width, time, way, radius, room, cylinders, centre, half, axis
    )


def resolution_for(config: RoomsConfig) -> float:
    """Edge of the grid's cells that lengths in such rooms are measured with, m."""
    return RESOLUTION if config.automaton is None else config.automaton.cell / 10


def geodesic_lengths(rooms: Rooms, config: RoomsConfig, resolution: float = RESOLUTION) -> torch.Tensor:
    """(N,) float32: length of the shortest way of the robot's centre from start to goal in each room, m.

    Infinite where the goal cannot be reached. A cell of the grid, ``resolution`` m wide, is free when its centre is at
    least the robot's radius from every surface. Kept on disk: rooms measured before are looked up.
    """
    path = cache.folder() / f"geodesic-{fingerprint(rooms, config)[:24]}-{resolution:g}-v{VERSION}.npy"
    lengths = _read_cache(path, rooms.goal.shape[0])
    if lengths is None:
        lengths = compute_lengths(rooms, config, resolution)
        _write_cache(path, lengths)
    return lengths.to(rooms.goal.device)


def compute_lengths(rooms: Rooms, config: RoomsConfig, resolution: float) -> torch.Tensor:
    """``geodesic_lengths`` without the cache."""
    if not resolution > 0:
        raise ValueError(f"resolution={resolution!r}: expected more than 0 m")
    start_warp()
    num = rooms.goal.shape[0]
    device = rooms.goal.device
    width, height = (max(4, round(length / resolution)) for length in config.size)
    # Few at a time on a CPU, so that the grids stay in its cache; enough to fill a GPU.
    chunk = min(num, 4 if device.type == "cpu" else 4096)
    lengths = torch.zeros(num, device=device)
    scratch = [
        torch.empty(chunk, width * height, device=device),
        torch.empty(chunk, width * height, dtype=torch.uint8, device=device),
        torch.empty(chunk, height, dtype=torch.int32, device=device),
        torch.empty(chunk, height, dtype=torch.int32, device=device),
    ]
    way = torch.empty(chunk, _LEGS + 2, 2, device=device)
    for offset in range(0, num, max(chunk, 1)):
        wp.launch(
            measure,
            dim=min(chunk, num - offset),
            inputs=[
                offset,
                wp.vec2(config.size[0] / 2, config.size[1] / 2),
                ROBOT.radius,
                Slots.of(config).cylinders,
                wp.from_torch(rooms.centre, dtype=wp.vec2),
                wp.from_torch(rooms.half, dtype=wp.vec2),
                wp.from_torch(rooms.axis, dtype=wp.vec2),
                wp.from_torch(rooms.start, dtype=wp.vec3),
                wp.from_torch(rooms.goal, dtype=wp.vec2),
                resolution,
                width,
                height,
                *(wp.from_torch(s) for s in scratch),
                wp.from_torch(way, dtype=wp.vec2),
                wp.from_torch(lengths),
            ],
            device=str(device),
        )
    return lengths


def fingerprint(rooms: Rooms, config: RoomsConfig) -> str:
    """Hash of what rooms are: every obstacle, start and goal, the settings they came from and the robot's radius."""
    digest = hashlib.sha256(repr((sorted(asdict(config).items()), ROBOT.radius)).encode())
    for name, tensor in rooms.tensors():
        if name != "failures":
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read_cache(path: Path, num: int) -> torch.Tensor | None:
    """What was kept; None when there is nothing, or nothing that makes sense."""
    try:
        lengths = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if lengths.shape != (num,) or lengths.dtype != np.float32 or np.isnan(lengths).any() or (lengths < 0).any():
        return None
    return torch.from_numpy(lengths)


def _write_cache(path: Path, lengths: torch.Tensor) -> None:
    """Written aside and renamed, so that a reader never meets half a file; without a cache we just compute again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as aside:
            np.save(aside, lengths.cpu().numpy())
        os.replace(aside.name, path)
    except OSError:
        return
