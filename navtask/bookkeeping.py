"""The parts of a step that are the same for every task, each one kernel: taking actions, naming ends, closing episodes.

Written as kernels because they are many small operations on few numbers: as separate tensor operations they would cost
a fifth of a whole step on a CPU.
"""

import torch
import warp as wp

wp.set_module_options({"enable_backward": False})


@wp.kernel
def take_actions(
    active: wp.array(dtype=wp.bool),
    actions: wp.array2d(dtype=wp.float32),
    # in and out
    step: wp.array(dtype=wp.int64),
    age: wp.array(dtype=wp.int64),
    # out
    clipped: wp.array2d(dtype=wp.float32),
    sane: wp.array(dtype=wp.bool),
    # sums
    saturated: wp.array(dtype=wp.float64),
    steps: wp.array(dtype=wp.float64),
):
    """Clip to [-1, 1], count what was clipped, and let the active rooms' clocks go on.

    A room whose action is not finite is not sane, and stands still.
    """
    room = wp.tid()
    finite = bool(True)
    for axis in range(actions.shape[1]):
        finite = finite and wp.isfinite(actions[room, axis])
    sane[room] = finite
    for axis in range(actions.shape[1]):
        a = actions[room, axis]
        clipped[room, axis] = wp.where(finite, wp.clamp(a, -1.0, 1.0), 0.0)
        if active[room] and wp.abs(a) > 1.0:
            wp.atomic_add(saturated, axis, wp.float64(1.0))
    if active[room]:
        step[room] = step[room] + wp.int64(1)
        age[room] = age[room] + wp.int64(1)
        wp.atomic_add(steps, 0, wp.float64(1.0))


@wp.kernel
def name_ends(
    active: wp.array(dtype=wp.bool),
    sane: wp.array(dtype=wp.bool),
    finite: wp.array(dtype=wp.bool),
    ends: wp.array2d(dtype=wp.bool),
    age: wp.array(dtype=wp.int64),
    limit: wp.int64,
    # out
    cause: wp.array2d(dtype=wp.bool),
    done: wp.array(dtype=wp.bool),
):
    """``cause`` (N, 1 + ends + 1): diverged, the task's own ends, time limit; the first that holds, alone."""
    room = wp.tid()
    last = cause.shape[1] - 1
    for c in range(last + 1):
        cause[room, c] = False
    ended = bool(False)
    if active[room]:
        if not sane[room] or not finite[room]:
            cause[room, 0] = True
            ended = True
        for e in range(ends.shape[1]):
            if not ended and ends[room, e]:
                cause[room, 1 + e] = True
                ended = True
        if not ended and age[room] >= limit:
            cause[room, last] = True
            ended = True
    done[room] = ended


@wp.kernel
def close_episodes(
    done: wp.array(dtype=wp.bool),
    cause: wp.array2d(dtype=wp.bool),
    rewards: wp.array2d(dtype=wp.float32),
    step: wp.array(dtype=wp.int64),
    age: wp.array(dtype=wp.int64),
    # sums: causes, rewards by term, length
    ended: wp.array(dtype=wp.float64),
):
    """Add the episodes that ended to the sums. One that began at a random age says nothing about how episodes end."""
    room = wp.tid()
    if not done[room] or age[room] != step[room]:
        return
    causes = cause.shape[1]
    terms = rewards.shape[1]
    for c in range(causes):
        if cause[room, c]:
            wp.atomic_add(ended, c, wp.float64(1.0))
    for t in range(terms):
        wp.atomic_add(ended, causes + t, wp.float64(rewards[room, t]))
    wp.atomic_add(ended, causes + terms, wp.float64(step[room]))


class Bookkeeping:
    """Buffers and recorded launches for N rooms, ``num_actions`` axes, ``num_ends`` ends of the task's own."""

    def __init__(
        self,
        *,
        step: torch.Tensor,
        age: torch.Tensor,
        reward_sums: torch.Tensor,
        num_actions: int,
        num_ends: int,
        limit: int,
    ):
        num, device = len(step), step.device

        def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self.active = zeros(num, dtype=torch.bool)
        self.actions = zeros(num, num_actions, dtype=torch.float32)
        self.clipped = zeros(num, num_actions, dtype=torch.float32)
        self.sane = zeros(num, dtype=torch.bool)
        self.finite = zeros(num, dtype=torch.bool)
        self.ends = zeros(num, num_ends, dtype=torch.bool)
        self.cause = zeros(num, num_ends + 2, dtype=torch.bool)
        self.done = zeros(num, dtype=torch.bool)
        self.sums = {
            "ended": zeros(num_ends + 2 + reward_sums.shape[1] + 1, dtype=torch.float64),
            "saturated": zeros(num_actions, dtype=torch.float64),
            "steps": zeros(1, dtype=torch.float64),
        }
        """Since they were last zeroed. ``ended``: episodes by cause, their rewards by term, their length."""
        a = {name: wp.from_torch(tensor) for name, tensor in vars(self).items() if isinstance(tensor, torch.Tensor)}
        s = {name: wp.from_torch(tensor) for name, tensor in self.sums.items()}
        step_, age_, rewards_ = wp.from_torch(step), wp.from_torch(age), wp.from_torch(reward_sums)

        def record(kernel: wp.Kernel, *inputs: object) -> wp.Launch:
            return wp.launch(kernel, dim=num, inputs=inputs, device=str(device), record_cmd=True)

        self._take = record(
            take_actions, a["active"], a["actions"], step_, age_, a["clipped"], a["sane"], s["saturated"], s["steps"]
        )
        self._name = record(
            name_ends, a["active"], a["sane"], a["finite"], a["ends"], age_, limit, a["cause"], a["done"]
        )
        self._close = record(close_episodes, a["done"], a["cause"], rewards_, step_, age_, s["ended"])

    def take(self, actions: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
        """Clipped actions (N, A), a live tensor; the active rooms' step and age go on."""
        self.active.copy_(active)
        self.actions.copy_(actions)
        self._take.launch()
        return self.clipped

    def name_ends(self) -> None:
        """From ``finite`` and ``ends``, which the task has filled in, to ``cause`` and ``done``."""
        self._name.launch()

    def close(self) -> None:
        """Account for the rooms that are ``done``."""
        self._close.launch()
