"""What a policy is worth: one episode in each room of a frozen set, metrics with their 95 % intervals.

Frozen sets are drawn from a random stream that training never uses; a task says what is drawn and what is measured.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDict

from navtask.contract import VecTask

if TYPE_CHECKING:
    from navtask.replay import Replay

Policy = Callable[[TensorDict], torch.Tensor]
"""Observation groups, each (N, width), to actions (N, A)."""


@dataclass(frozen=True)
class Estimate:
    """A mean over rooms with its 95 % interval."""

    value: float
    low: float
    high: float


def share(hits: torch.Tensor) -> Estimate:
    """Of (N,) bool, with the score interval (Wilson 1927); nan of nothing."""
    n, z = len(hits), 1.959964
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan)
    p = hits.double().mean().item()
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Estimate(p, min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)))


def mean(values: torch.Tensor) -> Estimate:
    """Of (N,), with the normal interval of the mean; nan of nothing."""
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan)
    m = values.double().mean().item()
    half = 1.959964 * values.double().std().item() / math.sqrt(n) if n > 1 else math.nan
    return Estimate(m, m - half, m + half)


def hash_drawn(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Tells two sets apart by what was drawn for them, by name; to 1e-4 of a metre or radian, so that it doesn't depend
    on the last bit of a cosine."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(name.encode())
        digest.update((tensor.double().cpu() * 1e4).round().to(torch.int64).numpy().tobytes())
    return digest.hexdigest()[:16]


class Evaluator(ABC):
    """Evaluates policies on one frozen set, as often as one likes: every time the same rooms, one episode each.

    Every metric is the mean over rooms of a number that each room has, or has not (nan: no success, no time to goal).
    So two policies can be compared room by room. Every task has ``success_rate``.
    """

    shares: frozenset[str]
    """Metrics that are 0 or 1 in a room; the others are measured on a scale."""
    set_hash: str
    """Tells this set of rooms from any other; see ``hash_drawn``."""
    unreachable_share: float
    """Share of rooms whose goal can't be reached."""

    def __init__(self, env: VecTask):
        """``env`` has the frozen rooms, and ``auto_reset`` off."""
        assert not env.auto_reset
        self.env = env

    @abstractmethod
    def _begin(self) -> None:
        """An episode begins in every room; ``env`` shows its first instant."""

    @abstractmethod
    def _before_step(self) -> None:
        """Keep what the next instant is to be compared with."""

    @abstractmethod
    def _after_step(self, active: torch.Tensor) -> None:
        """Measure an instant in the rooms (N,) bool whose episode it belongs to."""

    @abstractmethod
    def _measured(self, success: torch.Tensor, timeout: torch.Tensor, steps: torch.Tensor) -> dict[str, torch.Tensor]:
        """Every metric by name, (N,) float64 on the CPU, from how the episodes ended and all that was measured."""

    def run(self, policy: Policy, watch: Callable[[], None] | None = None) -> dict[str, torch.Tensor]:
        """One episode in every room: every metric by name, (N,) float64, nan where a room has none.

        Deterministic when the policy is. ``watch`` is called at every instant, the first included; ``env`` shows it.
        """
        env = self.env
        env.restart()
        ended = torch.zeros_like(env.cause)
        self._begin()
        observation = env.get_observations()
        for step in range(env.max_episode_length):
            if watch is not None:
                watch()
            active = env.active.clone()
            self._before_step()
            observation, *_ = env.step(policy(observation))
            self._after_step(active)
            ended |= env.cause
            if step % 10 == 9 and not env.active.any():
                break
        if watch is not None:
            watch()
        self._ended = ended.cpu()
        success, timeout = (self._ended[:, env.causes.index(cause)] for cause in ("success", "timeout"))
        return self._measured(success, timeout, env.episode.step.cpu())

    def configuration(self) -> torch.Tensor:
        """(N, nq) where the bodies are at this instant, finite; nothing, where a task can't be looked at."""
        return torch.empty(self.env.num_envs, 0)

    def replay(self, room: int, outcome: str, configurations: torch.Tensor) -> "Replay | None":
        """One room's episode to look at, from its ``configurations`` (T, nq), the first and the last included."""
        return None

    def replays(self, measured: Mapping[str, torch.Tensor], configurations: torch.Tensor, count: int) -> list["Replay"]:
        """``count`` episodes of the last ``run``, good and failed ones; ``configurations`` (T, N, nq) are those of
        every instant, as ``watch`` saw them."""
        from navtask.replay import choose

        steps = self.env.episode.step.cpu()
        outcomes = [self.env.causes[cause] for cause in self._ended.int().argmax(-1).tolist()]
        chosen = choose((measured["success_rate"] > 0).tolist(), steps.numpy(), count)
        replays = [self.replay(room, outcomes[room], configurations[: int(steps[room]) + 1, room]) for room in chosen]
        return [replay for replay in replays if replay is not None]

    def estimates(self, rooms: Mapping[str, torch.Tensor]) -> dict[str, Estimate]:
        """The mean over rooms of each metric of a ``run``, with its interval."""
        defined = {name: values[~values.isnan()] for name, values in rooms.items()}
        return {name: share(v > 0.5) if name in self.shares else mean(v) for name, v in defined.items()}
