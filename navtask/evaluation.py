"""Frozen sets of rooms, and what a policy is worth on them: one episode a room, nothing random."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from tensordict import TensorDict

from navtask import random
from navtask.nav.config import NavConfig, RoomsConfig
from navtask.nav.env import NavEnv
from navtask.nav.geodesic import geodesic_lengths
from navtask.nav.robot import ROBOT
from navtask.nav.scene import RoomDrawer, Rooms, Slots

GRID = 0.05
"""Resolution of the inflated grid on which geodesic lengths are measured, m."""

FROZEN_SEED = 0
HARDEST = 0.1
"""Share of rooms that count as the worst."""

Policy = Callable[[TensorDict], torch.Tensor]
"""Observation groups, each (N, width), to actions (N, A)."""


@dataclass(frozen=True)
class FrozenSet:
    """The first ``num`` rooms of a kind, drawn from a stream that training never uses, whatever its seed."""

    config: RoomsConfig
    num: int

    def draw(self) -> Rooms:
        """The rooms themselves, on the CPU."""
        rooms = Rooms.empty(self.num, Slots.of(self.config), torch.device("cpu"))
        drawer = RoomDrawer(rooms, self.config, seed=FROZEN_SEED, stream=random.FROZEN)
        drawer.draw(torch.ones(self.num, dtype=torch.bool), torch.zeros(self.num, dtype=torch.int32))
        return rooms


def hash_rooms(rooms: Rooms) -> str:
    """Tells two sets apart; to a tenth of a millimetre, so that it doesn't depend on the last bit of a cosine."""
    digest = hashlib.sha256()
    for name, tensor in rooms.tensors():
        if name != "failures":
            digest.update(name.encode())
            digest.update((tensor.double().cpu() * 1e4).round().to(torch.int64).numpy().tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Estimate:
    """A mean over rooms with its 95 % interval."""

    value: float
    low: float
    high: float


def share(hits: torch.Tensor) -> Estimate:
    """Of (N,) bool, with the score interval (Wilson 1927)."""
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


@dataclass(frozen=True)
class Episodes:
    """What happened, one episode a room; every tensor (N,)."""

    success: torch.Tensor
    timeout: torch.Tensor
    steps: torch.Tensor
    path_length: torch.Tensor
    """m"""
    least_clearance: torch.Tensor
    """From the robot's hull to the nearest surface, at its closest, m."""
    action_change: torch.Tensor
    """Mean of |a(t) - a(t-1)|^2 over the episode."""


class Evaluator:
    """Evaluates policies on one frozen set, as often as one likes; every time the same rooms.

    The task's own physics, sensors and limits; only the rooms are the set's. The rates of success, collision and
    time-out sum to 1: a collision is every end that is neither of the others.
    """

    def __init__(
        self, config: NavConfig, frozen: FrozenSet, *, device: str, backend: str, threads: int, privileged: bool = False
    ):
        self._env = NavEnv(
            replace(config, rooms=frozen.config),
            num_envs=frozen.num,
            seed=FROZEN_SEED,
            stream=random.FROZEN,
            device=device,
            backend=backend,
            threads=threads,
            privileged=privileged,
            auto_reset=False,
        )
        self._control_dt = config.control_dt
        self.set_hash = hash_rooms(self._env.rooms)
        self.geodesic = geodesic_lengths(self._env.rooms, frozen.config, GRID)
        """(N,) shortest collision-free length from start to goal, m; infinite where there is none."""
        straight = (self._env.rooms.goal - self._env.rooms.start[:, :2]).norm(dim=-1)
        detour = (self.geodesic / straight).cpu()
        self._hardest = detour.argsort(descending=True, stable=True)[: max(1, round(HARDEST * frozen.num))]

    @property
    def unreachable_share(self) -> float:
        """Share of rooms whose goal can't be reached."""
        return torch.isinf(self.geodesic).double().mean().item()

    def run(self, policy: Policy) -> Episodes:
        """One episode in every room. Deterministic when the policy is."""
        env = self._env
        env.restart()
        num = env.num_envs
        success = torch.zeros(num, dtype=torch.bool, device=env.device)
        timeout = torch.zeros_like(success)
        path, change = torch.zeros(num, device=env.device), torch.zeros(num, device=env.device)
        closest = env.truth.clearance.clone()
        observation = env.get_observations()
        for step in range(env.max_episode_length):
            active = env.active
            before, action_before = env.truth.pose[:, :2].clone(), env.episode.action.clone()
            observation, _, _, extras = env.step(policy(observation))
            path += active * (env.truth.pose[:, :2] - before).norm(dim=-1)
            closest = torch.where(active, torch.minimum(closest, env.truth.clearance), closest)
            if step > 0:
                change += active * (env.episode.action - action_before).square().sum(-1)
            timeout |= extras["time_outs"]
            success |= extras["success"]
            if step % 10 == 9 and not env.active.any():
                break
        steps = env.episode.step.clone()
        return Episodes(
            success=success.cpu(),
            timeout=timeout.cpu(),
            steps=steps.cpu(),
            path_length=path.cpu(),
            least_clearance=(closest - ROBOT.radius).cpu(),
            action_change=(change / (steps - 1).clamp(min=1)).cpu(),
        )

    def metrics(self, episodes: Episodes) -> dict[str, Estimate]:
        """Every metric of the evaluation by its name; times in s, lengths in m.

        - ``spl``: success weighted by path length, l / max(p, l) (Anderson et al. 2018, arXiv:1807.06757). The shortest
          length l ends at the goal, a success within ``goal_radius`` of it: a detour of that much is forgiven.
        - ``sct``: success weighted by completion time, t* / max(t, t*), t* = l / v_max (Yokoyama, Ha, Batra 2021,
          arXiv:2103.08022).
        - ``barn_score``: t* / clip(t, 2 t*, 8 t*) of successes, at most 0.5 (BARN challenge, Xiao et al. 2022).
        - ``time_to_goal``, ``path_length``: of the successes.
        - ``min_clearance``, ``action_change``: mean over all rooms of the episode's least clearance and mean squared
          change of action.
        - ``worst_decile_success``: on the tenth of the rooms whose shortest way is the greatest detour.
        """
        e = episodes
        shortest = self.geodesic.cpu().double()
        best_time = shortest / ROBOT.v_max
        time = e.steps.double() * self._control_dt
        zero = torch.zeros_like(shortest)
        reachable = torch.isfinite(shortest) & e.success

        def weighted(ratio: torch.Tensor) -> torch.Tensor:
            return torch.where(reachable, ratio, zero)

        return {
            "success_rate": share(e.success),
            "collision_rate": share(~e.success & ~e.timeout),
            "timeout_rate": share(e.timeout),
            "spl": mean(weighted(shortest / torch.maximum(e.path_length.double(), shortest))),
            "sct": mean(weighted(best_time / torch.maximum(time, best_time))),
            "barn_score": mean(weighted(best_time / time.clamp(2 * best_time, 8 * best_time))),
            "time_to_goal": mean(time[e.success]),
            "path_length": mean(e.path_length[e.success]),
            "min_clearance": mean(e.least_clearance),
            "action_change": mean(e.action_change),
            "worst_decile_success": share(e.success[self._hardest]),
        }
