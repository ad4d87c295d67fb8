"""MuJoCo Warp: every world of a GPU at once; on a CPU one thread, for comparing the two engines."""

import copy
import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp

from navtask.kernels import start_warp
from navtask.physics.contract import Physics

wp.set_module_options({"enable_backward": False})

# Room for contacts, and for pairs that may touch, on average over all worlds; a robot beside an obstacle makes up to
# four. What doesn't fit is dropped by the engine and counted here.
CONTACTS_PER_WORLD = 8
DEEP_CONTACTS_PER_WORLD = 1
CONSTRAINTS_PER_WORLD = 64
# A few worlds have less of an average.
FEWEST = 64

_BUFFERS = mjw.OverflowType
DROPPED = wp.constant(
    int(
        _BUFFERS.NEFC
        | _BUFFERS.NJMAX_NNZ
        | _BUFFERS.BROADPHASE
        | _BUFFERS.NARROWPHASE
        | _BUFFERS.CCD
        | _BUFFERS.EPA_HORIZON
    )
)
BOX = wp.constant(int(mujoco.mjtGeom.mjGEOM_BOX))
CYLINDER = wp.constant(int(mujoco.mjtGeom.mjGEOM_CYLINDER))


@wp.kernel
def begin_step(
    # which worlds
    active: wp.array(dtype=wp.bool),
    # in
    qpos: wp.array2d(dtype=wp.float32),
    qvel: wp.array2d(dtype=wp.float32),
    warmstart: wp.array2d(dtype=wp.float32),
    # out
    kept_qpos: wp.array2d(dtype=wp.float32),
    kept_qvel: wp.array2d(dtype=wp.float32),
    kept_warmstart: wp.array2d(dtype=wp.float32),
    overflow: wp.array(dtype=wp.int32),
):
    """Keep the state of the worlds that stand still, which the engine steps like all others."""
    world = wp.tid()
    overflow[world] = 0
    if active[world]:
        return
    for i in range(qpos.shape[1]):
        kept_qpos[world, i] = qpos[world, i]
    for i in range(qvel.shape[1]):
        kept_qvel[world, i] = qvel[world, i]
        kept_warmstart[world, i] = warmstart[world, i]


@wp.kernel
def end_step(
    # which worlds
    active: wp.array(dtype=wp.bool),
    # in
    kept_qpos: wp.array2d(dtype=wp.float32),
    kept_qvel: wp.array2d(dtype=wp.float32),
    kept_warmstart: wp.array2d(dtype=wp.float32),
    # out
    qpos: wp.array2d(dtype=wp.float32),
    qvel: wp.array2d(dtype=wp.float32),
    warmstart: wp.array2d(dtype=wp.float32),
):
    """Give the worlds that stand still their state back."""
    world = wp.tid()
    if active[world]:
        return
    for i in range(qpos.shape[1]):
        qpos[world, i] = kept_qpos[world, i]
    for i in range(qvel.shape[1]):
        qvel[world, i] = kept_qvel[world, i]
        warmstart[world, i] = kept_warmstart[world, i]


@wp.kernel
def put_at_rest(
    # which worlds
    mask: wp.array(dtype=wp.bool),
    # in
    place: wp.array2d(dtype=wp.float32),
    # out
    qpos: wp.array2d(dtype=wp.float32),
    qvel: wp.array2d(dtype=wp.float32),
    warmstart: wp.array2d(dtype=wp.float32),
    overflow: wp.array(dtype=wp.int32),
):
    """All that a world carries from step to step; the engine computes everything else anew."""
    world = wp.tid()
    overflow[world] = 0
    if not mask[world]:
        return
    for i in range(qpos.shape[1]):
        qpos[world, i] = place[world, i]
    for i in range(qvel.shape[1]):
        qvel[world, i] = 0.0
        warmstart[world, i] = 0.0


@wp.kernel
def clear_touching(mask: wp.array(dtype=wp.bool), touching: wp.array(dtype=wp.bool)):
    """No masked world touches anything, until ``mark_touching`` finds that it does."""
    world = wp.tid()
    if mask[world]:
        touching[world] = False


@wp.kernel
def mark_touching(
    # which worlds
    mask: wp.array(dtype=wp.bool),
    # in
    contacts: wp.array(dtype=wp.int32),
    dist: wp.array(dtype=wp.float32),
    margin: wp.array(dtype=wp.float32),
    world_of: wp.array(dtype=wp.int32),
    # out
    touching: wp.array(dtype=wp.bool),
):
    """One thread a place in the list of all worlds' contacts, of which the first ``contacts[0]`` are taken."""
    contact = wp.tid()
    if contact >= contacts[0]:
        return
    world = world_of[contact]
    if mask[world] and dist[contact] < margin[contact]:
        touching[world] = True


@wp.kernel
def count_dropped(
    # which worlds
    mask: wp.array(dtype=wp.bool),
    # in
    overflow: wp.array(dtype=wp.int32),
    contacts: wp.array(dtype=wp.int32),
    candidates: wp.array(dtype=wp.int32),
    room: int,
    # sum
    dropped: wp.array(dtype=wp.int64),
):
    """Count the masked worlds in which the engine may have dropped a contact. The shared lists name no world."""
    world = wp.tid()
    if mask[world] and ((overflow[world] & DROPPED) != 0 or contacts[0] > room or candidates[0] > room):
        wp.atomic_add(dropped, 0, wp.int64(1))


@wp.kernel
def write_geoms(
    # which worlds
    mask: wp.array(dtype=wp.bool),
    # in
    first: int,
    geom_type: wp.array(dtype=wp.int32),
    geom_body: wp.array(dtype=wp.int32),
    body_xpos: wp.array2d(dtype=wp.vec3),
    body_xquat: wp.array2d(dtype=wp.quat),
    new_pos: wp.array2d(dtype=wp.vec3),
    new_size: wp.array2d(dtype=wp.vec3),
    new_quat: wp.array2d(dtype=wp.vec4),
    # out
    pos: wp.array2d(dtype=wp.vec3),
    size: wp.array2d(dtype=wp.vec3),
    quat: wp.array2d(dtype=wp.quat),
    rbound: wp.array2d(dtype=wp.float32),
    aabb: wp.array3d(dtype=wp.vec3),
    xpos: wp.array2d(dtype=wp.vec3),
    xmat: wp.array2d(dtype=wp.mat33),
):
    """Everything that follows from the place and size of a box or an upright cylinder.

    The engine computes neither the bounding sphere and box anew, without which an obstacle that has grown is passed
    through, nor the place in the world of a geom that no joint moves.
    """
    world, k = wp.tid()
    if not mask[world]:
        return
    geom = first + k
    s = new_size[world, k]
    q = new_quat[world, k]  # w first
    pos[world, geom] = new_pos[world, k]
    size[world, geom] = s
    quat[world, geom] = wp.quat(q[0], q[1], q[2], q[3])  # the engine's quaternions have w first as well
    half = s
    bound = wp.length(s)
    if geom_type[geom] == CYLINDER:  # its size is (radius, half-length)
        half = wp.vec3(s[0], s[0], s[1])
        bound = wp.length(wp.vec2(s[0], s[1]))
    rbound[world, geom] = bound
    aabb[world, geom, 1] = half
    body = geom_body[geom]
    b = body_xquat[world, body]
    bq = wp.quat(b[1], b[2], b[3], b[0])  # Warp's own have w last
    gq = wp.quat(q[1], q[2], q[3], q[0])
    xpos[world, geom] = body_xpos[world, body] + wp.quat_rotate(bq, new_pos[world, k])
    xmat[world, geom] = wp.quat_to_matrix(bq * gq)


@contextmanager
def _compiling_alone() -> Iterator[None]:
    """Processes that compile the same kernel at the same time can crash one another."""
    with open(Path(wp.config.kernel_cache_dir) / "mujoco_warp.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class MujocoWarp(Physics):
    """MuJoCo Warp behind the contract, float32 throughout.

    Nothing in ``step``, ``reset`` and ``set_geoms`` waits for the device or looks at a value, and every buffer stays
    where it is, so that a CUDA graph can hold them all. Outside a graph the engine's solver does look, once an
    iteration, whether any world goes on. On the CPU, ``step`` and ``reset`` are recorded by Warp once
    and replayed: for a few worlds, where launching costs more than computing, that is sixty times faster. 256 worlds
    then take 2.4 times as long as those of MuJoCo C on one thread.

    On a GPU sums are not made in a fixed order: two runs agree to rounding only, and go apart after a touch. On a CPU
    they are equal.

    Contacts of cylinders are searched for in float32 and a few are missed: of 130,000 poses up to 10 cm deep 24, none
    of them deeper than 2 mm; of pairs of cylinders that share more than 10 cm about 4 in 1,000.

    The engine's own masked reset is not used: it loses the contacts of every world when world 0 is among those reset.
    """

    def __init__(self, model: mujoco.MjModel, num_worlds: int, substeps: int, device: torch.device):
        start_warp()
        self.num_worlds = num_worlds
        self.device = device
        self._device = wp.device_from_torch(str(device))  # also "cuda", which names no index
        self._substeps = substeps
        self._resizable = np.isin(model.geom_type, (BOX, CYLINDER))
        # It knows no such flag: it never resets a world by itself.
        model = copy.copy(model)
        model.opt.disableflags &= ~mujoco.mjtDisableBit.mjDSBL_AUTORESET.value
        fields = ("geom_pos", "geom_size", "geom_quat", "geom_rbound", "geom_aabb")
        with wp.ScopedDevice(self._device):
            self._model = mjw.put_model(model, batch_sizes=dict.fromkeys(fields, num_worlds))
            self._model.opt.warn_overflow = 0  # counted instead of printed
            if self._device.is_cuda:  # else its solver goes on for as many iterations as are allowed
                self._model.opt.graph_conditional = wp.is_conditional_graph_supported()
            self._data = mjw.make_data(
                model,
                nworld=num_worlds,
                naconmax=max(FEWEST, CONTACTS_PER_WORLD * num_worlds),
                naccdmax=max(FEWEST, DEEP_CONTACTS_PER_WORLD * num_worlds),
                njmax=CONSTRAINTS_PER_WORLD,
            )
        m, d = self._model, self._data
        self.qpos = wp.to_torch(d.qpos)
        self.qvel = wp.to_torch(d.qvel)
        self.touching = torch.zeros(num_worlds, dtype=torch.bool, device=device)
        self._ctrl = wp.to_torch(d.ctrl)
        self._mask = torch.ones(num_worlds, dtype=torch.bool, device=device)
        self._place = torch.zeros(num_worlds, model.nq, device=device)
        self.dropped = torch.zeros(1, dtype=torch.int64, device=device)
        own = {"mask": self._mask, "place": self._place, "touching": self.touching, "dropped": self.dropped}
        self._arrays = {name: wp.from_torch(tensor) for name, tensor in own.items()}
        self._kept = [wp.empty_like(array) for array in (d.qpos, d.qvel, d.qacc_warmstart)]
        self._carried = {
            "qpos": self.qpos,
            "qvel": self.qvel,
            "warmstart": wp.to_torch(d.qacc_warmstart),
            "touching": self.touching,
            **{name: wp.to_torch(getattr(m, name)) for name in fields},
            "geom_xpos": wp.to_torch(d.geom_xpos),
            "geom_xmat": wp.to_torch(d.geom_xmat),
        }
        """All that lives on from step to step, by name."""
        with _compiling_alone():
            self._advance = self._recorded(self._launch_advance)
            self._begin = self._recorded(self._launch_begin)
        self._place.copy_(torch.from_numpy(model.qpos0))
        self._begin()

    # -- launches on buffers that stay where they are -----------------------------------------------------------------

    def _recorded(self, launches: Callable[[], None]) -> Callable[[], None]:
        """On the CPU the launches as Warp replays them, without Python; on a GPU they belong to whoever captures."""
        if self._device.is_cuda:
            launches()  # every kernel is compiled, or loaded
            return launches
        with wp.ScopedCapture(device=self._device) as capture:
            launches()
        return partial(wp.capture_launch, capture.graph)

    def _launch_advance(self) -> None:
        """Move the masked worlds on by one control step under the engine's ``ctrl``."""
        d, mask = self._data, self._arrays["mask"]
        state = [d.qpos, d.qvel, d.qacc_warmstart]
        self._launch(begin_step, self.num_worlds, [mask, *state, *self._kept, d.overflow])
        with wp.ScopedDevice(self._device):
            for _ in range(self._substeps):
                mjw.step(self._model, d)
        self._launch(end_step, self.num_worlds, [mask, *self._kept, *state])
        # The engine integrates last; the contacts that it has are those before.
        self._launch_contacts()

    def _launch_begin(self) -> None:
        """Put the masked worlds at rest where ``place`` says."""
        d, a = self._data, self._arrays
        state = [d.qpos, d.qvel, d.qacc_warmstart]
        self._launch(put_at_rest, self.num_worlds, [a["mask"], a["place"], *state, d.overflow])
        self._launch_contacts()

    def _launch_contacts(self) -> None:
        """Kinematics and contacts of all worlds as they are now; ``touching`` of the masked ones follows."""
        d, a = self._data, self._arrays
        with wp.ScopedDevice(self._device):
            mjw.kinematics(self._model, d)
            mjw.collision(self._model, d)
        mask, touching, contact = a["mask"], a["touching"], d.contact
        self._launch(clear_touching, self.num_worlds, [mask, touching])
        found = [d.nacon, contact.dist, contact.includemargin, contact.worldid]
        self._launch(mark_touching, d.naconmax, [mask, *found, touching])
        used = [d.overflow, d.nacon, d.ncollision, d.naconmax]
        self._launch(count_dropped, self.num_worlds, [mask, *used, a["dropped"]])

    def _launch(self, kernel: wp.Kernel, dim: int | tuple[int, int], inputs: list[Any]) -> None:
        wp.launch(kernel, dim=dim, inputs=inputs, device=self._device)

    # -- the contract -------------------------------------------------------------------------------------------------

    def step(self, ctrl: torch.Tensor, active: torch.Tensor | None = None) -> None:  # noqa: D102
        self._ctrl.copy_(ctrl)
        if active is None:
            self._mask.fill_(True)
        else:
            self._mask.copy_(active)
        self._advance()

    def reset(self, mask: torch.Tensor, qpos: torch.Tensor) -> None:  # noqa: D102
        self._mask.copy_(mask)
        self._place.copy_(qpos)
        self._begin()

    def set_geoms(  # noqa: D102
        self, mask: torch.Tensor, first: int, pos: torch.Tensor, size: torch.Tensor, quat: torch.Tensor
    ) -> None:
        m, d = self._model, self._data
        count = pos.shape[1]
        if not self._resizable[first : first + count].all():
            raise ValueError("only boxes and cylinders can be set")
        new = [
            wp.from_torch(pos, dtype=wp.vec3),
            wp.from_torch(size, dtype=wp.vec3),
            wp.from_torch(quat, dtype=wp.vec4),
        ]
        fields = [m.geom_pos, m.geom_size, m.geom_quat, m.geom_rbound, m.geom_aabb, d.geom_xpos, d.geom_xmat]
        self._launch(
            write_geoms,
            (self.num_worlds, count),
            [wp.from_torch(mask), first, m.geom_type, m.geom_bodyid, d.xpos, d.xquat, *new, *fields],
        )

    def state(self) -> dict[str, Any]:  # noqa: D102
        return {name: tensor.clone() for name, tensor in self._carried.items()}

    def load(self, state: dict[str, Any]) -> None:  # noqa: D102
        for name, tensor in self._carried.items():
            tensor.copy_(state[name])
