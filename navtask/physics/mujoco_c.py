"""MuJoCo's own batch engine on CPU threads."""

from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp
from mujoco.batch import Batch

from navtask.kernels import Recorded
from navtask.physics.contract import Physics

wp.set_module_options({"enable_backward": False})

_GEOM_FIELDS = ("geom_pos", "geom_size", "geom_quat")
# Up to so many worlds each keeps an MjData of its own, and a step goes on from the stages that the one before it ended
# with: 8 % faster with 256 worlds, and the same to the last bit. With 1,024 the memory (170 kB each) undoes the gain.
KEPT_WORLDS = 512
_DERIVED_FIELDS = ("geom_aabb", "geom_rbound", "geom_sameframe", "bvh_aabb")


@wp.kernel
def read_state(
    positions: wp.array2d(dtype=wp.float64),
    velocities: wp.array2d(dtype=wp.float64),
    contacts: wp.array(dtype=wp.int32),
    # out
    qpos: wp.array2d(dtype=wp.float32),
    qvel: wp.array2d(dtype=wp.float32),
    touching: wp.array(dtype=wp.bool),
):
    """From the engine's float64 to the contract's live tensors."""
    world = wp.tid()
    for i in range(qpos.shape[1]):
        qpos[world, i] = wp.float32(positions[world, i])
    for i in range(qvel.shape[1]):
        qvel[world, i] = wp.float32(velocities[world, i])
    touching[world] = contacts[world] > 0


BOX = wp.constant(int(mujoco.mjtGeom.mjGEOM_BOX))
NONE = wp.constant(wp.uint8(int(mujoco.mjtSameFrame.mjSAMEFRAME_NONE)))
BODYROT = wp.constant(wp.uint8(int(mujoco.mjtSameFrame.mjSAMEFRAME_BODYROT)))


@wp.kernel
def put_geoms(
    # which worlds and geoms, and what they are to be
    mask: wp.array(dtype=wp.bool),
    first: int,
    pos: wp.array2d(dtype=wp.vec3),
    size: wp.array2d(dtype=wp.vec3),
    quat: wp.array2d(dtype=wp.vec4),
    # the model
    geom_type: wp.array(dtype=wp.int32),
    nodes: int,
    bvh_child: wp.array2d(dtype=wp.int32),
    bvh_nodeid: wp.array(dtype=wp.int32),
    # out
    geom_pos: wp.array2d(dtype=wp.vec3d),
    geom_size: wp.array2d(dtype=wp.vec3d),
    geom_quat: wp.array2d(dtype=wp.vec4d),
    geom_aabb: wp.array3d(dtype=wp.vec3d),
    geom_rbound: wp.array2d(dtype=wp.float64),
    geom_sameframe: wp.array2d(dtype=wp.uint8),
    bvh_aabb: wp.array3d(dtype=wp.vec3d),
):
    """Boxes and cylinders of the world body, turned about the vertical alone, and all that ``mj_setConst`` derives of
    them: bounds in their own frame, and in the world's those of the tree that collisions are looked for in."""
    world = wp.tid()
    if not mask[world]:
        return
    for m in range(pos.shape[1]):
        geom = first + m
        q = wp.vec4d(quat[world, m])
        s = wp.vec3d(size[world, m])
        geom_pos[world, geom] = wp.vec3d(pos[world, m])
        geom_size[world, geom] = s
        geom_quat[world, geom] = q
        half = s
        bound = wp.length(s)
        if geom_type[geom] != BOX:  # a cylinder: radius, half-height
            half = wp.vec3d(s[0], s[0], s[1])
            bound = wp.length(wp.vec2d(s[0], s[1]))
        geom_aabb[world, geom, 0] = wp.vec3d()
        geom_aabb[world, geom, 1] = half
        geom_rbound[world, geom] = bound
        if q == wp.vec4d(wp.float64(1.0), wp.float64(0.0), wp.float64(0.0), wp.float64(0.0)):
            geom_sameframe[world, geom] = BODYROT
        else:
            geom_sameframe[world, geom] = NONE
    for n in range(nodes):
        node = nodes - 1 - n  # children come after their parents
        leaf = bvh_nodeid[node]
        low = wp.vec3d()
        high = wp.vec3d()
        if leaf >= 0:
            h = geom_aabb[world, leaf, 1]
            turn = geom_quat[world, leaf]
            # Half-lengths of the shadows on x and y of a box turned by yaw.
            cosine = wp.abs(wp.float64(1.0) - wp.float64(2.0) * turn[3] * turn[3])
            sine = wp.abs(wp.float64(2.0) * turn[0] * turn[3])
            reach = wp.vec3d(cosine * h[0] + sine * h[1], sine * h[0] + cosine * h[1], h[2])
            low = geom_pos[world, leaf] - reach
            high = geom_pos[world, leaf] + reach
        else:
            left = bvh_child[node, 0]
            right = bvh_child[node, 1]
            low = wp.min(
                bvh_aabb[world, left, 0] - bvh_aabb[world, left, 1],
                bvh_aabb[world, right, 0] - bvh_aabb[world, right, 1],
            )
            high = wp.max(
                bvh_aabb[world, left, 0] + bvh_aabb[world, left, 1],
                bvh_aabb[world, right, 0] + bvh_aabb[world, right, 1],
            )
        bvh_aabb[world, node, 0] = wp.float64(0.5) * (low + high)
        bvh_aabb[world, node, 1] = wp.float64(0.5) * (high - low)


def _ids(mask: torch.Tensor) -> np.ndarray:
    return mask.numpy().nonzero()[0].astype(np.int32)


class MujocoC(Physics):
    """``mujoco.batch`` behind the contract; the result doesn't depend on ``threads``.

    Worlds to reset are picked by index here, which costs nothing on a CPU.
    """

    def __init__(self, model: mujoco.MjModel, num_worlds: int, substeps: int, threads: int):
        self.num_worlds = num_worlds
        self.device = torch.device("cpu")
        self._substeps = substeps
        self._batch = Batch(model, nsim=num_worlds, nthread=threads, persistent=num_worlds <= KEPT_WORLDS)
        # Live float64 views, bound and expanded once.
        self._qpos = torch.from_numpy(self._batch.bind("qpos"))
        self._qvel = torch.from_numpy(self._batch.bind("qvel"))
        self._ctrl = torch.from_numpy(self._batch.bind("ctrl"))
        contacts = wp.array(self._batch.bind("ncon"), dtype=wp.int32, device="cpu", copy=False)
        self._geoms = {name: self._batch.expand(name) for name in _GEOM_FIELDS}
        self._at_rest = self._batch.state[0].copy()
        self._batch.set_const()
        self._batch.forward(stage=mujoco.mjtStage.mjSTAGE_VEL.value)
        self.qpos = self._qpos.float()
        self.qvel = self._qvel.float()
        self.touching = torch.zeros(num_worlds, dtype=torch.bool)
        self.dropped = torch.zeros(1, dtype=torch.int64)
        reading = [self._qpos, self._qvel, contacts, self.qpos, self.qvel, self.touching]
        self._read = Recorded(self.device, (read_state, num_worlds, reading))
        self._read()
        self._mask = torch.zeros(num_worlds, dtype=torch.bool)
        self._put: Recorded | None = None
        self._given: tuple[Any, ...] = ()
        """What ``_put`` was recorded for: a task gives the same tensors each time."""

    def step(self, ctrl: torch.Tensor, active: torch.Tensor | None = None) -> None:  # noqa: D102
        self._ctrl.copy_(ctrl)
        ids = None if active is None else _ids(active)
        # The engine integrates first; the stage then brings position, velocity and contacts to the new instant.
        self._batch.step(ids, nstep=self._substeps, stage=mujoco.mjtStage.mjSTAGE_VEL.value)
        self._read()

    def reset(self, mask: torch.Tensor, qpos: torch.Tensor) -> None:  # noqa: D102
        ids = _ids(mask)
        if len(ids) == 0:
            return
        self._batch.state[ids] = self._at_rest
        self._qpos.numpy()[ids] = qpos.numpy()[ids]
        self._batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_VEL.value)
        self._read()  # the other worlds read what they did

    def set_geoms(  # noqa: D102
        self, mask: torch.Tensor, first: int, pos: torch.Tensor, size: torch.Tensor, quat: torch.Tensor
    ) -> None:
        given = (first, pos, size, quat)
        if self._put is None or any(a is not b for a, b in zip(given, self._given, strict=True)):
            self._put, self._given = self._record_put(*given), given
        self._mask.copy_(mask)
        self._put()

    def _record_put(self, first: int, pos: torch.Tensor, size: torch.Tensor, quat: torch.Tensor) -> Recorded:
        model = self._batch.model
        kinds = model.geom_type[first : first + pos.shape[1]]
        if not np.isin(kinds, (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER)).all():
            raise ValueError(f"only boxes and cylinders can be set, not geoms of types {sorted(set(kinds.tolist()))}")
        known = [model.geom_type, int(model.body_bvhnum[0]), model.bvh_child, model.bvh_nodeid]
        fields = [self._batch.expand(name) for name in (*_GEOM_FIELDS, *_DERIVED_FIELDS)]
        arguments = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in (*known, *fields)]
        for index in (-4, -1):  # bounding boxes: centre and half-lengths
            arguments[index] = arguments[index].unflatten(-1, (2, 3))
        given = [self._mask, first, pos, size, quat]
        return Recorded(self.device, (put_geoms, self.num_worlds, [*given, *arguments]))

    def state(self) -> dict[str, Any]:  # noqa: D102
        geoms = {name: torch.from_numpy(values.copy()) for name, values in self._geoms.items()}
        return {"rows": torch.from_numpy(self._batch.state.copy()), **geoms}

    def load(self, state: dict[str, Any]) -> None:  # noqa: D102
        for name, values in self._geoms.items():
            values[:] = state[name].numpy()
        self._batch.set_const()
        self._batch.state[:] = state["rows"].numpy()
        self._batch.forward(stage=mujoco.mjtStage.mjSTAGE_VEL.value)
        self._read()
