"""The environment under examination, as anybody outside sees it: rsl_rl's VecEnv, and what it may offer beyond that.

What an environment may offer, and which checks cannot tell without it:

- a ``seed`` in its constructor, so that copies can be made that are in the same state: nearly all of them;
- ``restart()``, back to every room's first episode; ``state()`` and ``load()``;
- ``extras``: ``terminated``, ``success``, ``final_obs``;
- ``action_range``, the (low, high) that it says its actions have;
- ``terms()`` and ``scene()``, which say what an observation's values are, and where things are; see ``Described``;
- ``pop_statistics()``, how its episodes went.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from navtask.description import Shown
from navtask.doctor.raised import NoOther, NotAVecEnv, told

T = TypeVar("T")

Make = Callable[[int, int], Any]
"""(number of rooms, seed) -> environment."""

VEC_ENV = (
    "num_envs", "num_actions", "max_episode_length", "episode_length_buf", "device", "get_observations", "step",
)  # fmt: skip
"""What every environment must have."""


@dataclass(frozen=True)
class Instant:
    """What one step returned, copied at once. All on the CPU."""

    observation: torch.Tensor
    """(N, W) float32, the groups side by side."""
    reward: torch.Tensor
    """(N,)"""
    done: torch.Tensor
    """(N,) bool"""
    time_out: torch.Tensor | None
    """This and what follows: None where the environment doesn't tell."""
    terminated: torch.Tensor | None
    success: torch.Tensor | None
    final: torch.Tensor | None
    """(N, W) before the reset."""

    @property
    def reached(self) -> torch.Tensor:
        """(N, W) the observation that the step led to, before any reset where that is told."""
        return self.observation if self.final is None else self.final


class Copy:
    """One running environment. Copies of one seed are in the same state as long as they are given the same actions."""

    def __init__(self, env: Any, key: tuple[int, int]):
        """Raises NotAVecEnv."""
        for name in VEC_ENV:
            if not hasattr(env, name):
                raise NotAVecEnv(f"has no {name}, as rsl_rl's VecEnv has")
        self.env = env
        self.key = key
        """(rooms, seed)"""
        self.rooms: int = env.num_envs
        self.axes: int = env.num_actions
        limit = torch.as_tensor(env.max_episode_length).cpu()
        self.limit = limit.expand(self.rooms).long()
        """(N,) control steps"""
        self._tolerance = 0.0 if torch.device(env.device).type == "cpu" else 1e-4  # a GPU adds in any order

    def observe(self) -> torch.Tensor:
        """(N, W) the current observation."""
        observation = self.env.get_observations()
        _check_mapping("get_observations() returns", observation)
        return side_by_side(observation)

    def step(self, actions: torch.Tensor) -> Instant:
        """One control step under ``actions`` (N, A), which are never written again."""
        return self.copied(self.raw_step(actions))

    def raw_step(self, actions: torch.Tensor) -> tuple[Any, Any, Any, Any]:
        """What the environment's own ``step`` returns, not copied."""
        returned = self.env.step(actions.to(self.env.device, copy=True))
        try:
            observation, reward, done, extras = returned
        except (TypeError, ValueError) as error:
            raise NotAVecEnv(f"step() returns {_kind(returned)}, not observation, reward, dones and extras") from error
        for name, part in (("observation", observation), ("extras", extras)):
            _check_mapping(f"step() returns as {name}", part)
        for name, part in (("reward", reward), ("dones", done)):
            if not isinstance(part, torch.Tensor):
                raise NotAVecEnv(f"step() returns as {name} {_kind(part)}, not a tensor")
        return observation, reward, done, extras

    def copied(self, returned: tuple[Any, Any, Any, Any]) -> Instant:
        """What ``step`` returned, as a value."""
        observation, reward, done, extras = returned

        def flag(name: str) -> torch.Tensor | None:
            return extras[name].cpu().bool().clone() if name in extras else None

        return Instant(
            observation=side_by_side(observation),
            reward=reward.float().cpu().clone(),
            done=done.cpu().bool().clone(),
            time_out=flag("time_outs"),
            terminated=flag("terminated"),
            success=flag("success"),
            final=side_by_side(extras["final_obs"]) if "final_obs" in extras else None,
        )

    def same(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """(N,) bool: rows that are equal, on a CPU bit for bit; not-a-numbers are equal."""
        equal = (one == other) | (one.isnan() & other.isnan()) | ((one - other).abs() <= self._tolerance)
        return equal.flatten(1).all(-1) if equal.dim() > 1 else equal

    def same_instant(self, one: Instant, other: Instant) -> torch.Tensor:
        """(N,) bool: rooms in which two instants are the same."""
        equal = self.same(one.observation, other.observation) & self.same(one.reached, other.reached)
        return equal & self.same(one.reward, other.reward) & (one.done == other.done)

    def idle(self) -> torch.Tensor:
        """(N, A) zeros."""
        return torch.zeros(self.rooms, self.axes)

    def leave(self, steps: int) -> None:
        """Let so many control steps be left to every episode."""
        self.env.episode_length_buf = (self.limit - steps).to(self.env.episode_length_buf)

    def scene(self) -> dict[str, torch.Tensor] | None:
        """Where things are now, (N, K) each."""
        if not hasattr(self.env, "scene"):
            return None
        return {name: part.float().cpu().reshape(self.rooms, -1).clone() for name, part in self.env.scene().items()}


def _check_mapping(what: str, part: Any) -> None:
    if not hasattr(part, "keys"):
        raise NotAVecEnv(f"{what} {_kind(part)}, not tensors by name")


def _kind(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, tuple | list) else f"a {type(value).__name__}"


class Patient:
    """Makes copies of the environment. ``rooms`` is how many the checks take where one doesn't need its own number."""

    def __init__(self, make: Make, *, seed: int, rooms: int, seeded: bool = True):
        self.seed = seed
        self.rooms = rooms
        self.seeded = seeded
        """Whether two environments can be made that ought to be equal."""
        self.reuse = False
        """Whether a restarted environment has been found to be as good as a new one."""
        self.restarts = False
        """Whether ``restart()`` exists."""
        self._make = make
        self._made = False
        self._idle: dict[tuple[int, int], list[Copy]] = {}
        self._lent: list[Copy] = []
        self._seen: dict[Callable[[Patient], Any], Any] = {}

    def copy(self, *, seed: int | None = None, rooms: int | None = None) -> Copy:
        """A copy at the beginning of every room's first episode; of another seed if one is given."""
        key = (rooms or self.rooms, self.seed if seed is None else seed)
        idle = self._idle.get(key)
        if self.reuse and idle:
            copy = idle.pop()
            copy.env.restart()
        else:
            copy = Copy(self._another(*key), key)
            self.restarts = hasattr(copy.env, "restart")
        self._lent.append(copy)
        return copy

    def _another(self, rooms: int, seed: int) -> Any:
        """A new environment. Raises NoOther, or what the first one raises."""
        try:
            env = self._make(rooms, seed)
        except Exception as error:
            if not self._made:
                raise
            raise NoOther(f"no other can be made, of {rooms} rooms and seed {seed}: {told(error)}") from error
        self._made = True
        return env

    def once(self, look: Callable[["Patient"], T]) -> T:
        """What ``look`` sees, for all checks that ask."""
        if look not in self._seen:
            self._seen[look] = look(self)
        seen: T = self._seen[look]
        return seen

    def give_back(self) -> None:
        """No copy lent so far is used any more."""
        if self.reuse:
            for copy in self._lent:
                self._idle.setdefault(copy.key, []).append(copy)
        self._lent.clear()


def side_by_side(observation: Any) -> torch.Tensor:
    """(N, W) float32 on the CPU: a copy of all groups, in the order of their names."""
    groups = [observation[name] for name in sorted(observation.keys())]
    return torch.cat([group.float().flatten(1).cpu() for group in groups], dim=-1)


def columns(copy: Copy) -> dict[str, tuple[slice, Shown]] | None:
    """Term -> where its newest values stand in ``Instant.observation``, and what it is; None where it isn't told.

    A term of several groups is the one of the group that comes first.
    """
    if not hasattr(copy.env, "terms"):
        return None
    terms: Mapping[str, Any] = copy.env.terms()
    observation = copy.env.get_observations()
    found: dict[str, tuple[slice, Shown]] = {}
    offset = 0
    for group in sorted(observation.keys()):
        for term in terms.get(group, ()):
            start = offset + term.start
            found.setdefault(term.name, (slice(start, start + term.width), term))
        offset += observation[group].flatten(1).shape[1]
    return found


class Driver:
    """Draws actions: pushes in a random direction, each held for a while, so that bodies get about and meet things."""

    HOLD = 12
    """Control steps."""

    def __init__(self, copy: Copy, seed: int):
        self._generator = torch.Generator().manual_seed(seed)
        self._shape = (copy.rooms, copy.axes)
        self._left = torch.zeros(copy.rooms, dtype=torch.long)
        self._push = torch.zeros(self._shape)
        self._low, self._high = action_range(copy)

    def uniform(self) -> torch.Tensor:
        """(N, A) anywhere in the range."""
        return self._scaled(2 * torch.rand(self._shape, generator=self._generator) - 1)

    def push(self) -> torch.Tensor:
        """(N, A) half of the axes at rest, the largest of the others at a limit."""
        drawn = 2 * torch.rand(self._shape, generator=self._generator) - 1
        drawn *= torch.rand(self._shape, generator=self._generator) < 0.5
        drawn /= drawn.abs().amax(-1, keepdim=True).clamp(min=1e-3)
        self._push = torch.where((self._left == 0).unsqueeze(-1), drawn, self._push)
        hold = torch.randint(1, self.HOLD, (self._shape[0],), generator=self._generator)
        self._left = torch.where(self._left == 0, hold, self._left - 1)
        return self._scaled(self._push)

    def _scaled(self, share: torch.Tensor) -> torch.Tensor:
        return self._low + (share + 1) / 2 * (self._high - self._low)


def action_range(copy: Copy) -> tuple[float, float]:
    """Of every axis; what most take where nothing is said."""
    low, high = getattr(copy.env, "action_range", (-1.0, 1.0))
    return float(low), float(high)
