"""The lidar: every beam against every obstacle that it can meet, in closed form, one thread a room.

An obstacle is tested only against the beams within the angle that it covers as seen from the scanner.
"""

import math

import torch
import warp as wp

from navtask import random
from navtask.crew import Crew
from navtask.kernels import Recorded
from navtask.nav.config import LidarConfig, RoomsConfig
from navtask.nav.scene import Rooms, Slots, distance_to_slot

wp.set_module_options({"enable_backward": False})


FAR = wp.constant(1.0e9)
# Rooms that a thread scans at a time.
PART = 32


@wp.func
def ray_to_circle(o: wp.vec2, d: wp.vec2, radius: float) -> float:
    """Distance along the unit ray o + t d to a circle about the origin, from outside; FAR for a miss, m."""
    b = wp.dot(o, d)
    disc = b * b - (wp.dot(o, o) - radius * radius)
    t = -b - wp.sqrt(wp.max(disc, 0.0))
    return wp.where(disc < 0.0 or t < 0.0, FAR, t)


@wp.func
def ray_to_box(o: wp.vec2, d: wp.vec2, half: wp.vec2) -> float:
    """Distance along the unit ray o + t d to an axis-aligned box about the origin, from outside; FAR for a miss, m."""
    inv_x = 1.0 / d[0]
    inv_y = 1.0 / d[1]
    tx = -o[0] * inv_x
    ty = -o[1] * inv_y
    rx = half[0] * wp.abs(inv_x)
    ry = half[1] * wp.abs(inv_y)
    enter = wp.max(tx - rx, ty - ry)
    leave = wp.min(tx + rx, ty + ry)
    return wp.where(enter > leave or enter < 0.0, FAR, enter)


@wp.func
def away_from_zero(x: float) -> float:
    """x, or a number too small to matter where dividing by x would not be finite."""
    if wp.abs(x) < 1.0e-9:
        return 1.0e-9
    return x


@wp.func
def rough_atan2(y: float, x: float) -> float:
    """atan2 to within 5e-3 rad, much cheaper; only used to choose which beams to test."""
    ax = wp.abs(x)
    ay = wp.abs(y)
    ratio = wp.min(ax, ay) / wp.max(wp.max(ax, ay), 1.0e-9)
    angle = ratio * (0.9724 - 0.1919 * ratio * ratio)
    if ay > ax:
        angle = 0.5 * wp.pi - angle
    if x < 0.0:
        angle = wp.pi - angle
    if y < 0.0:
        angle = -angle
    return angle


@wp.kernel
def scan_rooms(
    # which rooms, where the scanner is
    first: int,
    mask: wp.array(dtype=wp.bool),
    pose: wp.array(dtype=wp.vec3),
    # the rooms
    room_half: wp.vec2,
    cylinders: int,
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
    # the scanner
    beams: wp.array(dtype=wp.vec2),
    max_range: float,
    # noise
    noise_std: float,
    dropout: float,
    source: random.Source,
    episode: wp.array(dtype=wp.int32),
    step: wp.array(dtype=wp.int64),
    # out
    clean: wp.array2d(dtype=wp.float32),
    noisy: wp.array2d(dtype=wp.float32),
    shortest: wp.array(dtype=wp.float32),
    clearance: wp.array(dtype=wp.float32),
    nearest: wp.array(dtype=wp.vec2),
):
    """Ranges of the masked rooms from ``first`` on; with them the distance to the nearest surface and the body-frame
    direction to it."""
    room = first + wp.tid()
    if not mask[room]:
        return
    p = pose[room]
    o = wp.vec2(p[0], p[1])
    cos_yaw = wp.cos(p[2])
    sin_yaw = wp.sin(p[2])
    num = beams.shape[0]
    spacing = 2.0 * wp.pi / float(num)

    for i in range(num):
        b = beams[i]
        dx = away_from_zero(cos_yaw * b[0] - sin_yaw * b[1])
        dy = away_from_zero(sin_yaw * b[0] + cos_yaw * b[1])
        to_x = (wp.where(dx > 0.0, room_half[0], -room_half[0]) - o[0]) / dx
        to_y = (wp.where(dy > 0.0, room_half[1], -room_half[1]) - o[1]) / dy
        clean[room, i] = wp.clamp(wp.min(to_x, to_y), 0.0, max_range)

    # Nearest wall.
    near = room_half[0] - wp.abs(o[0])
    toward = wp.vec2(wp.sign(o[0]), 0.0)
    if room_half[1] - wp.abs(o[1]) < near:
        near = room_half[1] - wp.abs(o[1])
        toward = wp.vec2(0.0, wp.sign(o[1]))

    for slot in range(centre.shape[1]):
        h = half[room, slot]
        if h[0] > 0.0:
            is_box = slot >= cylinders
            c = centre[room, slot]
            a = axis[room, slot]
            offset = c - o
            distance = wp.length(offset)

            surface = distance_to_slot(o, is_box, c, h, a)
            if surface < near:
                near = surface
                toward = offset
                if is_box:
                    local = wp.vec2(-a[0] * offset[0] - a[1] * offset[1], a[1] * offset[0] - a[0] * offset[1])
                    on = wp.vec2(wp.clamp(local[0], -h[0], h[0]), wp.clamp(local[1], -h[1], h[1])) - local
                    toward = wp.vec2(a[0] * on[0] - a[1] * on[1], a[1] * on[0] + a[0] * on[1])

            bound = h[0]
            if is_box:
                bound = wp.length(h)
            if distance - bound < max_range:
                first = int(0)
                count = num
                if distance > bound:
                    # Beams within asin(x) of the bearing can meet the obstacle, x = bound / distance;
                    # asin(x) <= x + (pi/2 - 1) x^3. A little more for the rough bearing.
                    bearing = rough_atan2(
                        cos_yaw * offset[1] - sin_yaw * offset[0], cos_yaw * offset[0] + sin_yaw * offset[1]
                    )
                    x = bound / distance
                    spread = x + 0.5707964 * x * x * x + 0.006
                    first = int(wp.ceil((bearing - spread) / spacing))
                    count = wp.min(num, int(wp.floor((bearing + spread) / spacing)) - first + 1)
                    if first < 0:
                        first += num
                # In the frame of the obstacle.
                ol = wp.vec2(-a[0] * offset[0] - a[1] * offset[1], a[1] * offset[0] - a[0] * offset[1])
                cl = a[0] * cos_yaw + a[1] * sin_yaw
                sl = a[0] * sin_yaw - a[1] * cos_yaw
                for k in range(count):
                    i = first + k
                    if i >= num:
                        i -= num
                    b = beams[i]
                    t = float(0.0)
                    if is_box:
                        d = wp.vec2(away_from_zero(cl * b[0] - sl * b[1]), away_from_zero(sl * b[0] + cl * b[1]))
                        t = ray_to_box(ol, d, h)
                    else:
                        t = ray_to_circle(ol, wp.vec2(cl * b[0] - sl * b[1], sl * b[0] + cl * b[1]), h[0])
                    clean[room, i] = wp.min(clean[room, i], t)

    clearance[room] = near
    size = wp.max(wp.length(toward), 1.0e-9)
    nearest[room] = wp.vec2(
        (cos_yaw * toward[0] + sin_yaw * toward[1]) / size, (cos_yaw * toward[1] - sin_yaw * toward[0]) / size
    )

    if noise_std > 0.0 or dropout > 0.0:
        key = random.key(source, room, episode[room])
        for i in range(num):
            u = random.uniform4(key, random.SCAN_NOISE, int(step[room]) * num + i)
            r = clean[room, i] + noise_std * random.normal2(u[0], u[1])[0]
            if u[2] < dropout:
                r = max_range
            noisy[room, i] = wp.clamp(r, 0.0, max_range)
    least = max_range
    for i in range(num):
        least = wp.min(least, noisy[room, i])
    shortest[room] = least


class Lidar:
    """Scans N rooms at once from their robots' poses.

    ``clean`` and ``noisy`` are (N, beams) ranges in m (the same tensor where there is no noise), ``shortest`` (N,) the
    shortest of ``noisy``, ``clearance`` (N,) the distance from the robot's centre to the nearest surface in m,
    ``nearest`` (N, 2) the body-frame unit vector to it. All live: refreshed by ``scan`` in the masked rooms only.
    """

    def __init__(
        self,
        config: LidarConfig,
        rooms_config: RoomsConfig,
        rooms: Rooms,
        *,
        episode: torch.Tensor,
        step: torch.Tensor,
        source: random.Source,
        threads: int = 1,
    ):
        num, device = len(rooms.goal), rooms.goal.device
        self._mask = torch.ones(num, dtype=torch.bool, device=device)
        self._pose = torch.zeros(num, 3, device=device)
        self.clean = torch.zeros(num, config.beams, device=device)
        has_noise = config.noise_std > 0 or config.dropout > 0
        self.noisy = torch.zeros_like(self.clean) if has_noise else self.clean
        self.shortest = torch.zeros(num, device=device)
        self.clearance = torch.zeros(num, device=device)
        self.nearest = torch.zeros(num, 2, device=device)
        angles = torch.arange(config.beams, dtype=torch.float64) * (2 * math.pi / config.beams)
        self._beams = torch.stack([angles.cos(), angles.sin()], -1).float().to(device)
        arguments = [
            self._mask,
            self._pose,
            wp.vec2(rooms_config.size[0] / 2, rooms_config.size[1] / 2),
            Slots.of(rooms_config).cylinders,
            rooms.centre,
            rooms.half,
            rooms.axis,
            self._beams,
            config.max_range,
            config.noise_std,
            config.dropout,
            source,
            episode,
            step,
            self.clean,
            self.noisy,
            self.shortest,
            self.clearance,
            self.nearest,
        ]

        def record(first: int, end: int) -> Recorded:
            return Recorded(device, (scan_rooms, end - first, [first, *arguments]))

        self._whole = record(0, num)
        # A kernel on the CPU runs on one thread: parts of the rooms are scanned side by side instead. On a GPU, and for
        # a few rooms, one launch it is.
        self._parts: list[Recorded] = []
        if device.type == "cpu" and threads > 1 and num > PART:
            self._parts = [record(first, min(first + PART, num)) for first in range(0, num, PART)]
            self._crew = Crew(threads - 1)

    def scan(self, mask: torch.Tensor, pose: torch.Tensor, *, few: bool = False) -> None:
        """Scan the rooms of ``mask`` (N,) bool from ``pose`` (N, 3): x, y in m and yaw in rad. ``few``: hardly any."""
        self._mask.copy_(mask)
        self._pose.copy_(pose)
        if few or not self._parts:
            self._whole()
        else:
            self._crew.run(self._parts)
