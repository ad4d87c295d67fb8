"""Worlds of one back end with obstacles made by hand, and short words for what the tests of physics do with them."""

import torch
from navsetup import load_nav, load_rooms, rooms_by_hand

from navtask.nav.robot import ROBOT
from navtask.nav.scene import GeomWriter, Slots, build_model, first_obstacle_geom
from navtask.physics import build_physics

CONTROL_DT, PHYSICS_DT = load_nav().control_dt, load_nav().physics_dt
SUBSTEPS = round(CONTROL_DT / PHYSICS_DT)

# About the origin, so close that whoever wanders about touches something soon.
FURNITURE = {
    "cylinders": [(0.7, 0.3, 0.3), (-0.6, -0.6, 0.4)],
    "boxes": [(0.3, -0.7, 0.3, 0.15, 0.7), (-0.4, 0.7, 0.5, 0.3, 2.0)],
}

OBSTACLE = {
    "cylinder": {"cylinders": [(0.0, 0.0, 0.4)]},
    "square box": {"boxes": [(0.0, 0.0, 0.4, 0.4, 0.0)]},
    "rotated box": {"boxes": [(0.0, 0.0, 0.5, 0.2, 0.6)]},
    "second cylinder": {"cylinders": [(3.0, 3.0, 0.2), (0.0, 0.0, 0.4)]},
    "second box": {"boxes": [(3.0, 3.0, 0.2, 0.2, 0.0), (0.0, 0.0, 0.3, 0.6, 0.3)]},
}


class Worlds:
    """``num`` equal worlds. MuJoCo Warp compiles a kernel for each number of worlds: 1, 8 and 32 are enough."""

    def __init__(self, backend, num, *, device="cpu", threads=1, substeps=SUBSTEPS, cylinders=(), boxes=()):
        self.config = load_rooms(obstacles=[4, 4])
        self.model = build_model(self.config, PHYSICS_DT)
        self.physics = build_physics(backend, self.model, num, substeps=substeps, threads=threads, device=device)
        self.num = num
        self.everywhere = torch.ones(num, dtype=torch.bool)
        self.furnish(self.everywhere, cylinders=cylinders, boxes=boxes)
        self.put(self.everywhere, torch.zeros(num, 3))

    def furnish(self, mask, *, cylinders=(), boxes=()):
        self.rooms = rooms_by_hand(
            self.config, start=[0.0, 0.0, 0.0], goal=[1.0, 0.0], cylinders=cylinders, boxes=boxes, num=self.num
        )
        writer = GeomWriter(self.rooms, Slots.of(self.config))
        writer.write(mask)
        mask, *new = self._there(mask, writer.pos, writer.size, writer.quat)
        self.physics.set_geoms(mask, first_obstacle_geom(self.model), *new)

    def put(self, mask, qpos):
        rows = torch.as_tensor(qpos, dtype=torch.float32).expand(self.num, 3).contiguous()
        self.physics.reset(*self._there(mask, rows))

    def drive(self, ctrl, steps=1, active=None):
        rows = torch.as_tensor(ctrl, dtype=torch.float32).expand(self.num, 3).contiguous()
        for _ in range(steps):
            self.physics.step(*self._there(rows, active))

    def now(self):
        return self.qpos.clone(), self.qvel.clone(), self.touching.clone()

    def _there(self, *tensors):
        return [None if tensor is None else tensor.to(self.physics.device) for tensor in tensors]

    qpos = property(lambda self: self.physics.qpos.cpu())
    qvel = property(lambda self: self.physics.qvel.cpu())
    touching = property(lambda self: self.physics.touching.cpu())


def same(one, other, rows=slice(None)):
    return all(torch.equal(a[rows], b[rows]) for a, b in zip(one, other, strict=True))


def random_ctrl(num, generator):
    return (torch.rand(num, 3, generator=generator) * 2 - 1) * torch.tensor([ROBOT.v_max, ROBOT.v_max, ROBOT.omega_max])


def eight_directions():
    """(8,) angles all around, none along an axis, and (8, 2) the unit vectors."""
    angles = torch.arange(8) * (torch.pi / 4) + 0.05
    return angles, torch.stack([angles.cos(), angles.sin()], -1)


TOUCHED = ("wall", "cylinder", "rotated box")


def first_touch(backend, kind, device="cpu"):
    """Physics step at which each of 8 robots first touches what it drives into, (8,), and where it was one step before,
    (8, 3)."""
    worlds = Worlds(backend, 8, device=device, substeps=1, **OBSTACLE.get(kind, {}))
    _, direction = eight_directions()
    if kind == "wall":  # from a metre inside the place where the ray from the middle meets it
        start = direction * (worlds.config.size[0] / 2 / direction.abs().amax(-1, keepdim=True) - 1.0)
    else:
        start, direction = 1.2 * direction, -direction
    worlds.put(worlds.everywhere, torch.cat([start, torch.zeros(8, 1)], -1))
    when, before = torch.full((8,), -1), worlds.qpos.clone()
    for step in range(100):
        before = torch.where((when < 0)[:, None], worlds.qpos, before)
        worlds.drive(torch.cat([direction, torch.ones(8, 1)], -1))
        when = torch.where((when < 0) & worlds.touching, step, when)
    assert (when >= 0).all(), f"{backend}: never touched in {when.tolist()}"
    return when, before
