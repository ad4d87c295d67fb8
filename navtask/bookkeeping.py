"""The parts of a step that are the same for every task, as kernels: taking actions, naming ends, paying rewards,
closing episodes and beginning new ones.

Written as kernels because they are many small operations on few numbers: as separate tensor operations they would cost
a fifth of a whole step on a CPU.
"""

from collections.abc import Sequence

import torch
import warp as wp

from navtask.kernels import Recorded

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
    success: int,
    # out
    cause: wp.array2d(dtype=wp.bool),
    outcome: wp.array2d(dtype=wp.bool),
):
    """``cause`` (N, 1 + ends + 1): diverged, the task's own ends, time limit; the first that holds, alone.

    ``outcome`` (4, N): done, timed out, terminated, succeeded; ``success`` is a column of ``cause``.
    """
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
    outcome[0, room] = ended
    outcome[1, room] = cause[room, last]
    outcome[2, room] = ended and not cause[room, last]
    outcome[3, room] = cause[room, success]


@wp.kernel
def pay_rewards(
    active: wp.array(dtype=wp.bool),
    values: wp.array2d(dtype=wp.float32),
    weights: wp.array2d(dtype=wp.float32),
    scale: float,
    # in and out
    reward_sums: wp.array2d(dtype=wp.float32),
    # out
    rewards: wp.array(dtype=wp.float32),
):
    """The scaled sum of the weighted terms; ``values`` are (terms, N), weights and sums (N, terms)."""
    room = wp.tid()
    total = float(0.0)
    if active[room]:
        for t in range(values.shape[0]):
            paid = values[t, room] * weights[room, t]
            reward_sums[room, t] = reward_sums[room, t] + paid
            total += paid
    rewards[room] = total * scale


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


@wp.kernel
def zero_rows(mask: wp.array(dtype=wp.bool), rows: wp.array2d(dtype=wp.uint8)):
    """Zero every byte of the masked rows."""
    room = wp.tid()
    if mask[room]:
        for byte in range(rows.shape[1]):
            rows[room, byte] = wp.uint8(0)


@wp.kernel
def count_rows(mask: wp.array(dtype=wp.bool), count: wp.array(dtype=wp.int32)):
    """One more in the masked rows."""
    room = wp.tid()
    if mask[room]:
        count[room] = count[room] + 1


class Bookkeeping:
    """Buffers and recorded launches for N rooms, ``num_actions`` axes, ``num_ends`` ends of the task's own."""

    def __init__(
        self,
        *,
        step: torch.Tensor,
        age: torch.Tensor,
        reward_sums: torch.Tensor,
        reward_scale: float,
        num_actions: int,
        num_ends: int,
        success: int,
        limit: int,
    ):
        (num, num_terms), device = reward_sums.shape, step.device

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self.active = zeros(num, dtype=torch.bool)
        self.actions = zeros(num, num_actions)
        self.clipped = zeros(num, num_actions)
        self.sane = zeros(num, dtype=torch.bool)
        self.finite = zeros(num, dtype=torch.bool)
        self.ends = zeros(num, num_ends, dtype=torch.bool)
        self.cause = zeros(num_ends + 2, num, dtype=torch.bool).T  # each cause's rooms side by side
        self.outcome = zeros(4, num, dtype=torch.bool)
        """Who is done, and of these, who timed out, who was terminated and who succeeded."""
        self.values = zeros(num_terms, num)
        self.weights = zeros(num, num_terms)
        self.rewards = zeros(num)
        self.sums = {
            "ended": zeros(num_ends + 2 + num_terms + 1, dtype=torch.float64),
            "saturated": zeros(num_actions, dtype=torch.float64),
            "steps": zeros(1, dtype=torch.float64),
        }
        """Since they were last zeroed. ``ended``: episodes by cause, their rewards by term, their length."""
        saturated, steps, ended = self.sums["saturated"], self.sums["steps"], self.sums["ended"]
        taking = [self.active, self.actions, step, age, self.clipped, self.sane, saturated, steps]
        self._take = Recorded(device, (take_actions, num, taking))
        naming = [self.active, self.sane, self.finite, self.ends, age, limit, success, self.cause, self.outcome]
        self._name = Recorded(device, (name_ends, num, naming))
        paying = [self.active, self.values, self.weights, reward_scale, reward_sums, self.rewards]
        closing = [self.outcome[0], self.cause, reward_sums, step, age, ended]
        self._pay = Recorded(device, (pay_rewards, num, paying), (close_episodes, num, closing))

    def take(self, actions: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
        """Clipped actions (N, A), a live tensor; the active rooms' step and age go on."""
        self.active.copy_(active)
        self.actions.copy_(actions)
        self._take()
        return self.clipped

    def name_ends(self) -> torch.Tensor:
        """From ``finite`` and ``ends``, which the task has filled in, to ``cause`` and a fresh ``outcome``."""
        self._name()
        return self.outcome.clone()

    def pay(self, values: Sequence[torch.Tensor], weights: torch.Tensor) -> torch.Tensor:
        """Fresh rewards (N,) from the terms' ``values``, (N,) each, and ``weights``, (terms,) or (N, terms); accounts
        for the rooms that are done."""
        torch.stack(list(values), out=self.values)
        self.weights.copy_(weights)
        self._pay()
        return self.rewards.clone()
