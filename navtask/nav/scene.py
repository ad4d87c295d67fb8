"""Rooms: how they are drawn, in batch and on the device, and how the engine's model of them is made."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import mujoco
import torch
import warp as wp

from navtask import random
from navtask.kernels import Recorded
from navtask.nav import barn
from navtask.nav.config import RoomsConfig
from navtask.nav.parking import APART, PARKING, park
from navtask.nav.robot import ROBOT, ROBOT_XML

wp.set_module_options({"enable_backward": False})

WALL_HALF_THICKNESS = 0.05
OBSTACLE_HALF_HEIGHT = 0.5


@dataclass(frozen=True)
class Slots:
    """The fixed pool of obstacle geoms in every room: cylinders first, then boxes; unused ones are parked."""

    cylinders: int
    boxes: int

    @classmethod
    def of(cls, config: RoomsConfig) -> "Slots":
        """Enough slots for the greatest number of obstacles, half of each kind; an automaton's are all boxes."""
        most = config.obstacles[1]
        if config.automaton is not None:
            return cls(cylinders=0, boxes=most)
        return cls(cylinders=(most + 1) // 2, boxes=most // 2)

    @property
    def total(self) -> int:
        """Number of obstacle geoms."""
        return self.cylinders + self.boxes


@dataclass
class Rooms:
    """N drawn rooms of M obstacle slots each, as float32 tensors; lengths in m, angles in rad."""

    centre: torch.Tensor
    """(N, M, 2); parked slots lie far outside."""
    half: torch.Tensor
    """(N, M, 2) half-lengths of a box, or a cylinder's radius twice; 0 marks an unused slot."""
    axis: torch.Tensor
    """(N, M, 2) cosine and sine of the slot's yaw."""
    start: torch.Tensor
    """(N, 3) x, y, yaw."""
    goal: torch.Tensor
    """(N, 2)"""
    failures: torch.Tensor
    """(N,) int32: obstacles left out, starts or goals placed in the corners, and lanes cleared through a field, because
    nothing better was found within the tries; counted over all drawings."""

    @classmethod
    def empty(cls, num: int, slots: Slots, device: torch.device) -> "Rooms":
        """Room for ``num`` rooms, nothing drawn yet."""

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(num, *shape, dtype=dtype, device=device)

        return cls(
            centre=zeros(slots.total, 2),
            half=zeros(slots.total, 2),
            axis=zeros(slots.total, 2),
            start=zeros(3),
            goal=zeros(2),
            failures=zeros(dtype=torch.int32),
        )

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor with its name."""
        for f in fields(self):
            yield f.name, getattr(self, f.name)

    def copy_(self, other: "Rooms") -> None:
        """Take over another batch of the same shape."""
        for name, tensor in self.tensors():
            tensor.copy_(getattr(other, name))


@wp.struct
class Drawing:
    """The numbers of RoomsConfig, as a kernel takes them."""

    half_x: float
    half_y: float
    fewest: int
    most: int
    half_min: float
    half_max: float
    gap: float
    clearance: float
    goal_distance: float
    tries: int
    cylinders: int


def drawing(config: RoomsConfig) -> Drawing:
    """Pack a config for the kernel."""
    d = Drawing()
    d.half_x, d.half_y = config.size[0] / 2, config.size[1] / 2
    d.fewest, d.most = config.obstacles
    assert config.half_size is not None
    d.half_min, d.half_max = config.half_size
    d.gap = config.gap
    d.clearance = ROBOT.radius + config.margin
    d.goal_distance = config.goal_distance
    d.tries = config.tries
    d.cylinders = Slots.of(config).cylinders
    return d


@wp.func
def distance_to_box(p: wp.vec2, centre: wp.vec2, half: wp.vec2, axis: wp.vec2) -> float:
    """Signed distance from a point to a rotated box, m; negative inside."""
    d = p - centre
    qx = wp.abs(axis[0] * d[0] + axis[1] * d[1]) - half[0]
    qy = wp.abs(axis[0] * d[1] - axis[1] * d[0]) - half[1]
    outside = wp.length(wp.vec2(wp.max(qx, 0.0), wp.max(qy, 0.0)))
    return outside + wp.min(wp.max(qx, qy), 0.0)


@wp.func
def distance_to_slot(p: wp.vec2, is_box: bool, centre: wp.vec2, half: wp.vec2, axis: wp.vec2) -> float:
    """Signed distance from a point to an obstacle's surface, m."""
    if is_box:
        return distance_to_box(p, centre, half, axis)
    return wp.length(p - centre) - half[0]


@wp.func
def reach_along(direction: wp.vec2, half: wp.vec2, axis: wp.vec2) -> float:
    """Half the length of a rotated box's shadow on a unit direction, m."""
    along = direction[0] * axis[0] + direction[1] * axis[1]
    across = direction[1] * axis[0] - direction[0] * axis[1]
    return wp.abs(along) * half[0] + wp.abs(across) * half[1]


@wp.func
def reach_of_slot(is_box: bool, half: wp.vec2, axis: wp.vec2) -> wp.vec2:
    """How far an obstacle reaches from its centre along x and y, m."""
    if is_box:
        return wp.vec2(reach_along(wp.vec2(1.0, 0.0), half, axis), reach_along(wp.vec2(0.0, 1.0), half, axis))
    return wp.vec2(half[0], half[0])


@wp.func
def gap_along(direction: wp.vec2, d: wp.vec2, ha: wp.vec2, aa: wp.vec2, hb: wp.vec2, ab: wp.vec2) -> float:
    """Gap between the shadows of two boxes, whose centres are ``d`` apart, on a unit direction, m."""
    return wp.abs(wp.dot(d, direction)) - reach_along(direction, ha, aa) - reach_along(direction, hb, ab)


@wp.func
def gap_between_boxes(d: wp.vec2, ha: wp.vec2, aa: wp.vec2, hb: wp.vec2, ab: wp.vec2) -> float:
    """A lower bound of the distance between two rotated boxes (separating axes), m."""
    gap = wp.max(gap_along(aa, d, ha, aa, hb, ab), gap_along(ab, d, ha, aa, hb, ab))
    gap = wp.max(gap, gap_along(wp.vec2(-aa[1], aa[0]), d, ha, aa, hb, ab))
    return wp.max(gap, gap_along(wp.vec2(-ab[1], ab[0]), d, ha, aa, hb, ab))


@wp.kernel
def draw_rooms(
    # whose rooms
    mask: wp.array(dtype=wp.bool),
    episode: wp.array(dtype=wp.int32),
    source: random.Source,
    config: Drawing,
    # out
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
    start: wp.array(dtype=wp.vec3),
    goal: wp.array(dtype=wp.vec2),
    failures: wp.array(dtype=wp.int32),
):
    """Draw the masked rooms anew: obstacles one after the other by rejection, then start and goal together."""
    room = wp.tid()
    if not mask[room]:
        return
    key = random.key(source, room, episode[room])

    slots = centre.shape[1]
    for slot in range(slots):
        park(room, slot, centre, half, axis)

    u = random.uniform4(key, random.OBSTACLES, 0)
    count = config.fewest + int(u[0] * float(config.most - config.fewest + 1))
    for k in range(count):
        is_box = k % 2 == 1  # kinds alternate
        slot = k // 2
        if is_box:
            slot += config.cylinders
        placed = bool(False)
        for t in range(config.tries):
            if not placed:
                index = 1 + 2 * (k * config.tries + t)
                size = random.uniform4(key, random.OBSTACLES, index)
                place = random.uniform4(key, random.OBSTACLES, index + 1)
                h = wp.vec2(wp.lerp(config.half_min, config.half_max, size[0]))
                a = wp.vec2(1.0, 0.0)
                if is_box:
                    h = wp.vec2(h[0], wp.lerp(config.half_min, config.half_max, size[1]))
                    yaw = wp.pi * size[2]
                    a = wp.vec2(wp.cos(yaw), wp.sin(yaw))
                reach = reach_of_slot(is_box, h, a)
                room_x = config.half_x - config.gap - reach[0]
                room_y = config.half_y - config.gap - reach[1]
                c = wp.vec2((2.0 * place[0] - 1.0) * room_x, (2.0 * place[1] - 1.0) * room_y)
                free = room_x >= 0.0 and room_y >= 0.0
                for other in range(slots):
                    oh = half[room, other]
                    if free and oh[0] > 0.0:
                        oc = centre[room, other]
                        oa = axis[room, other]
                        other_is_box = other >= config.cylinders
                        distance = float(0.0)
                        if is_box and other_is_box:
                            distance = gap_between_boxes(oc - c, h, a, oh, oa)
                        elif is_box:
                            distance = distance_to_box(oc, c, h, a) - oh[0]
                        else:
                            distance = distance_to_slot(c, other_is_box, oc, oh, oa) - h[0]
                        free = distance >= config.gap
                if free:
                    placed = True
                    centre[room, slot] = c
                    half[room, slot] = h
                    axis[room, slot] = a
        if not placed:
            failures[room] = failures[room] + 1

    inner_x = config.half_x - config.clearance
    inner_y = config.half_y - config.clearance
    found = bool(False)
    s = wp.vec2(-inner_x, -inner_y)
    g = wp.vec2(inner_x, inner_y)
    for t in range(config.tries):
        if not found:
            u = random.uniform4(key, random.PLACES, 1 + t)
            s = wp.vec2((2.0 * u[0] - 1.0) * inner_x, (2.0 * u[1] - 1.0) * inner_y)
            g = wp.vec2((2.0 * u[2] - 1.0) * inner_x, (2.0 * u[3] - 1.0) * inner_y)
            found = wp.length(g - s) >= config.goal_distance
            for slot in range(slots):
                h = half[room, slot]
                if found and h[0] > 0.0:
                    is_box = slot >= config.cylinders
                    c = centre[room, slot]
                    a = axis[room, slot]
                    found = distance_to_slot(s, is_box, c, h, a) >= config.clearance
                    found = found and distance_to_slot(g, is_box, c, h, a) >= config.clearance
    if not found:
        # Opposite corners; whatever stands in the way of either is left out.
        failures[room] = failures[room] + 1
        s = wp.vec2(-inner_x, -inner_y)
        g = wp.vec2(inner_x, inner_y)
        for slot in range(slots):
            h = half[room, slot]
            is_box = slot >= config.cylinders
            c = centre[room, slot]
            a = axis[room, slot]
            near = wp.min(distance_to_slot(s, is_box, c, h, a), distance_to_slot(g, is_box, c, h, a))
            if h[0] > 0.0 and near < config.clearance:
                park(room, slot, centre, half, axis)
    u = random.uniform4(key, random.PLACES, 0)
    start[room] = wp.vec3(s[0], s[1], wp.pi * (2.0 * u[0] - 1.0))
    goal[room] = g


class RoomDrawer:
    """Draws rooms into a ``Rooms``, those of a mask at a time.

    A room's layout is a function of its key and the config alone.
    """

    def __init__(self, rooms: Rooms, config: RoomsConfig, source: random.Source):
        num, self._device = len(rooms.goal), rooms.goal.device
        self._mask = torch.zeros(num, dtype=torch.bool, device=self._device)
        self._episode = torch.zeros(num, dtype=torch.int32, device=self._device)
        kernel = draw_rooms if config.automaton is None else barn.draw_courses
        settings: list[Any]  # of a Warp struct, and arrays
        if config.automaton is None:
            settings = [drawing(config)]
        else:
            settings = [barn.course(config), *barn.scratch(num, config, self._device)]
        out = [rooms.centre, rooms.half, rooms.axis, rooms.start, rooms.goal, rooms.failures]
        arguments = [self._mask, self._episode, source, *settings, *out]
        self._draw = Recorded(self._device, (kernel, num, arguments))

    def draw(self, mask: torch.Tensor, episode: torch.Tensor) -> None:
        """Draw the rooms of ``mask`` (N,) bool for their ``episode`` (N,) numbers."""
        self._mask.copy_(mask)
        self._episode.copy_(episode)
        self._draw()


def build_model(config: RoomsConfig, physics_dt: float) -> mujoco.MjModel:
    """The robot in a walled room with every obstacle slot parked.

    Obstacle geoms ``obstacle_<slot>`` follow each other in slot order from ``first_obstacle_geom``.
    """
    spec = mujoco.MjSpec.from_file(str(ROBOT_XML))
    spec.option.timestep = physics_dt
    world = spec.worldbody
    # An obstacle or a wall touches the robot, never another: contype 0, conaffinity 1.
    passive = {"contype": 0, "conaffinity": 1}
    t, z = WALL_HALF_THICKNESS, OBSTACLE_HALF_HEIGHT
    x, y = config.size[0] / 2, config.size[1] / 2
    for name, pos, size in (
        ("wall_east", (x + t, 0, z), (t, y + 2 * t, z)),
        ("wall_north", (0, y + t, z), (x + 2 * t, t, z)),
        ("wall_west", (-x - t, 0, z), (t, y + 2 * t, z)),
        ("wall_south", (0, -y - t, z), (x + 2 * t, t, z)),
    ):
        world.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=pos, size=size, **passive)
    slots = Slots.of(config)
    for slot in range(slots.total):
        box = slot >= slots.cylinders
        world.add_geom(
            name=f"obstacle_{slot}",
            type=mujoco.mjtGeom.mjGEOM_BOX if box else mujoco.mjtGeom.mjGEOM_CYLINDER,
            pos=(PARKING + APART * slot, PARKING, z),
            size=(0.1, 0.1, z) if box else (0.1, z, 0),
            **passive,
        )
    return spec.compile()


def first_obstacle_geom(model: mujoco.MjModel) -> int:
    """Index of the geom of slot 0."""
    return mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, "obstacle_0")


@wp.kernel
def write_geoms(
    mask: wp.array(dtype=wp.bool),
    cylinders: int,
    half_height: float,
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
    # out
    pos: wp.array2d(dtype=wp.vec3),
    size: wp.array2d(dtype=wp.vec3),
    quat: wp.array2d(dtype=wp.vec4),
):
    """Geom fields of the masked rooms' obstacles. Unused slots keep a small size, in their parking place."""
    room = wp.tid()
    if not mask[room]:
        return
    for slot in range(centre.shape[1]):
        c = centre[room, slot]
        a = axis[room, slot]
        hx = wp.max(half[room, slot][0], 0.05)
        hy = wp.max(half[room, slot][1], 0.05)
        pos[room, slot] = wp.vec3(c[0], c[1], half_height)
        # A cylinder's size is (radius, half-height), a box's its three half-lengths.
        if slot < cylinders:
            size[room, slot] = wp.vec3(hx, half_height, 0.0)
        else:
            size[room, slot] = wp.vec3(hx, hy, half_height)
        # Half-angle formulas: yaw lies in [0, pi), so both are non-negative.
        w = wp.sqrt(wp.max((1.0 + a[0]) / 2.0, 0.0))
        z = wp.sqrt(wp.max((1.0 - a[0]) / 2.0, 0.0))
        quat[room, slot] = wp.vec4(w, 0.0, 0.0, z)


class GeomWriter:
    """Turns ``Rooms`` into the engine's geom fields: pos, size and quat, each (N, M, 3 or 4)."""

    def __init__(self, rooms: Rooms, slots: Slots):
        num, total = rooms.half.shape[:2]
        device = rooms.half.device
        self._mask = torch.zeros(num, dtype=torch.bool, device=device)
        self.pos = torch.zeros(num, total, 3, device=device)
        self.size = torch.zeros(num, total, 3, device=device)
        self.quat = torch.zeros(num, total, 4, device=device)
        writing = [
            self._mask,
            slots.cylinders,
            OBSTACLE_HALF_HEIGHT,
            rooms.centre,
            rooms.half,
            rooms.axis,
            self.pos,
            self.size,
            self.quat,
        ]
        self._write = Recorded(device, (write_geoms, num, writing))

    def write(self, mask: torch.Tensor) -> None:
        """Refresh the fields of the masked rooms, (N,) bool."""
        self._mask.copy_(mask)
        self._write()
