"""How tests come by a task: settings from ``conf/``, rooms drawn or made by hand, geometry computed independently."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import yaml

from navtask import random
from navtask.config import ObservationTermConfig, RewardTermConfig
from navtask.nav.config import (
    AutomatonConfig,
    LidarConfig,
    NavConfig,
    RoomsConfig,
)
from navtask.nav.scene import RoomDrawer, Rooms, Slots

CONF = Path(__file__).parents[2] / "conf" / "task"
PRESETS = ("open", "dense")


def load_rooms(preset="open", **changes):
    """The settings of a preset, but for the changes."""
    raw = yaml.safe_load((CONF / "rooms" / f"{preset}.yaml").read_text())
    if raw.get("automaton"):
        raw["automaton"] = AutomatonConfig(**raw["automaton"])
    return replace(RoomsConfig(**raw), **changes)


def load_nav(preset="open", **changes):
    """The task's settings, but for the changes."""
    raw = yaml.safe_load((CONF / "nav.yaml").read_text())
    raw.pop("defaults")
    raw["rooms"] = load_rooms(preset)
    raw["lidar"] = LidarConfig(**raw["lidar"])
    raw["observations"] = {name: ObservationTermConfig(**term) for name, term in raw["observations"].items()}
    raw["rewards"] = {name: RewardTermConfig(**term) for name, term in raw["rewards"].items()}
    return replace(NavConfig(**raw), **changes)


def draw(config, num, *, seed=0, stream=0, first_room=0, episode=0, mask=None, into=None):
    """Rooms of a kind."""
    rooms = into or Rooms.empty(num, Slots.of(config), torch.device("cpu"))
    drawer = RoomDrawer(rooms, config, random.source(seed, stream, first_room))
    everywhere = torch.ones(num, dtype=torch.bool)
    drawer.draw(everywhere if mask is None else mask, torch.full((num,), episode, dtype=torch.int32))
    return rooms


def rooms_by_hand(config, *, start, goal, cylinders=(), boxes=(), num=1):
    """``num`` equal rooms. Cylinders are (x, y, radius); boxes (x, y, half x, half y, yaw); start (x, y, yaw)."""
    slots = Slots.of(config)
    rooms = draw(config, num)
    rooms.half[:] = 0
    rooms.axis[:] = torch.tensor([1.0, 0.0])
    rooms.centre[:] = torch.tensor([100.0, 100.0])
    rooms.centre[..., 0] += 2.0 * torch.arange(slots.total)
    rooms.failures[:] = 0
    for slot, (x, y, radius) in enumerate(cylinders):
        assert slot < slots.cylinders
        rooms.centre[:, slot] = torch.tensor([x, y])
        rooms.half[:, slot] = radius
    for k, (x, y, hx, hy, yaw) in enumerate(boxes):
        assert k < slots.boxes
        slot = slots.cylinders + k
        rooms.centre[:, slot] = torch.tensor([x, y])
        rooms.half[:, slot] = torch.tensor([hx, hy])
        rooms.axis[:, slot] = torch.tensor([np.cos(yaw), np.sin(yaw)], dtype=torch.float32)
    rooms.start[:] = torch.tensor(start)
    rooms.goal[:] = torch.tensor(goal)
    return rooms


def use_rooms(env, rooms):
    """Let every episode of ``env`` take place in ``rooms``, and begin anew."""

    def draw_these(mask, _episode):
        for name, tensor in env.rooms.tensors():
            tensor[mask] = getattr(rooms, name)[mask]

    env._drawer.draw = draw_these
    env.restart()


# -- geometry, in float64 and by other means than the package's ------------------------------------------------------


def obstacles(rooms, config, room):
    """What stands in a room: a list of ("cylinder", centre, radius) and ("box", four corners counter-clockwise)."""
    slots = Slots.of(config)
    found = []
    for slot in range(slots.total):
        half = rooms.half[room, slot].double().numpy()
        if half[0] == 0:
            continue
        centre = rooms.centre[room, slot].double().numpy()
        if slot < slots.cylinders:
            found.append(("cylinder", centre, half[0]))
        else:
            c, s = rooms.axis[room, slot].double().numpy()
            corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * half
            found.append(("box", centre + corners @ np.array([[c, s], [-s, c]]), half))
    return found


def point_to_segment(points, a, b):
    """Distance of points (..., 2) to a segment, and the nearest point of it."""
    t = np.clip(((points - a) @ (b - a)) / ((b - a) @ (b - a)), 0, 1)
    nearest = a + t[..., None] * (b - a)
    return np.linalg.norm(points - nearest, axis=-1), nearest


def distance_to(obstacle, points):
    """Distance of points (..., 2) outside to the obstacle's surface, and the nearest point of it; -1 inside a box."""
    kind, shape, size = obstacle
    points = np.asarray(points, dtype=float)
    if kind == "cylinder":
        to_centre = shape - points
        far = np.linalg.norm(to_centre, axis=-1)
        return far - size, points + to_centre * ((far - size) / far)[..., None]
    sides = [point_to_segment(points, shape[k], shape[(k + 1) % 4]) for k in range(4)]
    distance = np.stack([d for d, _ in sides])
    best = distance.argmin(0)
    nearest = np.take_along_axis(np.stack([n for _, n in sides]), best[None, ..., None], 0)[0]
    edges = np.roll(shape, -1, axis=0) - shape
    inside = np.all(
        [
            e[0] * (points[..., 1] - p[1]) - e[1] * (points[..., 0] - p[0]) > 0
            for e, p in zip(edges, shape, strict=True)
        ],
        axis=0,
    )
    return np.where(inside, -1.0, distance.min(0)), nearest


def gap_between(one, other):
    """Distance between two obstacles that don't overlap; negative where a corner or centre lies inside."""
    if one[0] == "cylinder":
        return float(distance_to(other, one[1])[0]) - one[2]
    if other[0] == "cylinder":
        return gap_between(other, one)
    # Of two convex polygons apart from each other a corner of one is nearest.
    return float(min(distance_to(one, other[1])[0].min(), distance_to(other, one[1])[0].min()))


def clearance(rooms, config, room, points):
    """Distance of points (..., 2) to the nearest surface, walls included, and the nearest point of it."""
    points = np.asarray(points, dtype=float)
    x, y = config.size[0] / 2, config.size[1] / 2
    found = []
    for axis, wall in ((0, x), (0, -x), (1, y), (1, -y)):
        on_wall = points.copy()
        on_wall[..., axis] = wall
        found.append((np.abs(wall - points[..., axis]), on_wall))
    found += [distance_to(o, points) for o in obstacles(rooms, config, room)]
    distance = np.stack([d for d, _ in found])
    best = distance.argmin(0)
    nearest = np.take_along_axis(np.stack([n for _, n in found]), best[None, ..., None], 0)[0]
    return distance.min(0), nearest


def free_poses(rooms, config, room, count, rng, margin=0.01):
    """``count`` random poses (x, y, yaw) whose centre lies outside every obstacle."""
    half = np.array(config.size) / 2 - margin
    points = rng.uniform(-half, half, (4 * count, 2))
    points = points[clearance(rooms, config, room, points)[0] > margin][:count]
    assert len(points) == count
    return np.concatenate([points, rng.uniform(-np.pi, np.pi, (count, 1))], axis=1)
