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
        self._batch = Batch(model, nsim=num_worlds, nthread=threads)
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
        reading = [self._qpos, self._qvel, contacts, self.qpos, self.qvel, self.touching]
        self._read = Recorded(self.device, (read_state, num_worlds, reading))
        self._read()

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
        ids = _ids(mask)
        if len(ids) == 0:
            return
        geoms = slice(first, first + pos.shape[1])
        for name, values in zip(_GEOM_FIELDS, (pos, size, quat), strict=True):
            self._geoms[name][ids, geoms] = values.numpy()[ids]
        self._batch.set_const(ids)  # bounding volumes follow the new sizes

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
