"""What every task is: action, observation, reward, termination, and one loop that owns all that they share.

A task says how its bodies move and what they sense, which ends there are, and which registered terms make up reward and
observation. Clipping, the order of things within a step, auto-reset, time-outs, the observation before a reset and the
accounting of episodes are here, once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from navtask import random
from navtask.ages import draw_ages
from navtask.bookkeeping import Bookkeeping, count_rows, zero_rows
from navtask.config import TaskConfig
from navtask.graph import Outcome, StepGraph
from navtask.kernels import Recorded
from navtask.physics.contract import Physics
from navtask.registry import evaluate


def refilled() -> Any:
    """A field of an Episode whose rows a task's reset writes in full."""
    return field(metadata={"refilled": True})


@dataclass
class Episode:
    """All that an episode carries from step to step. A task adds its own tensors, (N,) or (N, K) or ``refilled()``.

    ``reset`` zeroes the masked rows of every tensor, so nothing can hide between episodes; ``number`` alone lives on,
    and fields made by ``refilled()`` are overwritten as a whole when the task reads its sensors anew.
    """

    number: torch.Tensor
    """(N,) int32: how many episodes of this room came before; keys its random numbers."""
    step: torch.Tensor
    """(N,) int64: control steps since the reset."""
    age: torch.Tensor
    """(N,) int64: what the time limit counts; ahead of ``step`` where first episodes start at a random age."""
    reward_sums: torch.Tensor
    """(N, terms): weighted reward so far, by term."""

    def __post_init__(self) -> None:
        num = len(self.number)
        self._mask = torch.zeros_like(self.number, dtype=torch.bool)
        zeroed = [getattr(self, f.name) for f in fields(self) if f.name != "number" and not f.metadata.get("refilled")]
        self._next = Recorded(
            self.number.device,
            *((zero_rows, num, [self._mask, tensor.view(num, -1).view(torch.uint8)]) for tensor in zeroed),
            (count_rows, num, [self._mask, self.number]),
        )

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def reset(self, mask: torch.Tensor) -> None:
        """Begin the next episode in the rooms of ``mask`` (N,) bool."""
        self._mask.copy_(mask)
        self._next()


@dataclass
class RewardSum:
    """The reward's terms, each already bound to its parameters: ``term(context) -> (N,)``."""

    names: list[str]
    terms: Sequence[Callable[[Any], torch.Tensor]]
    weights: torch.Tensor
    """(terms,), or (N, terms) where rooms are weighted differently."""

    def values(self, context: Any, num_envs: int) -> list[torch.Tensor]:
        """Each term's (N,), not weighted yet. Raises TermError for a term that raises or returns another shape."""
        return [
            evaluate("reward", name, term, (num_envs,), context)
            for name, term in zip(self.names, self.terms, strict=True)
        ]


class VecTask(VecEnv, ABC):
    """N rooms stepped together; rsl_rl's ``VecEnv`` with the guarantees that it leaves open.

    Within a step everything belongs to one instant: the bodies move; kinematics, contacts and sensors are read once;
    ends, rewards and observation come from that reading; then the rooms that ended are reset, and only their
    observation is refreshed. ``extras`` of a step:

    - ``time_outs`` (N,) bool: the time limit alone ended the episode. ``dones`` is the union with ``terminated``.
    - ``terminated`` (N,) bool, and of these ``success`` (N,) bool.
    - ``final_obs``: observations before the reset; in rooms that did not end it equals the returned one.

    Returned tensors are fresh: they never change later. Actions are clipped to [-1, 1] here, and every term sees the
    clipped ones. With ``auto_reset`` off, a room that ended stands still for good: one episode a room.
    """

    #: Ends of this task by name, first those that take precedence. ``diverged`` (a state that is not finite) comes
    #: before all of them and ``timeout`` after. ``success`` is one of them.
    ends: Sequence[str]
    physics: Physics

    def __init__(
        self,
        config: TaskConfig,
        *,
        num_envs: int,
        num_actions: int,
        episode: Episode,
        reward: RewardSum,
        auto_reset: bool,
        device: torch.device,
        source: random.Source,
    ):
        self.config = self.cfg = config
        self.num_envs = num_envs
        self.num_actions = num_actions
        self.max_episode_length = round(config.episode_length / config.control_dt)
        self.device = device
        self.episode = episode
        self.reward = reward
        self.reward_scale = config.reward_scale
        self.auto_reset = auto_reset
        self.active = torch.ones(num_envs, dtype=torch.bool, device=device)
        """(N,) rooms whose episode is under way; all of them with ``auto_reset``. Live."""
        self.cuda_graph = device.type == "cuda"
        """Whether each step is one captured CUDA graph. May be switched off, on CUDA; a graph goes on reading the
        tensors that it was captured with, the reward's weights among them: write into them, don't replace them."""
        self._graph: StepGraph | None = None
        self._source = source
        self.causes = ("diverged", *self.ends, "timeout")
        self._books = Bookkeeping(
            step=episode.step,
            age=episode.age,
            reward_sums=episode.reward_sums,
            reward_scale=config.reward_scale,
            num_actions=num_actions,
            num_ends=len(self.ends),
            success=self.causes.index("success"),
            limit=self.max_episode_length,
        )
        self.cause = self._books.cause
        """(N, causes) bool: which of ``causes`` the last step was in each room, if any. Live."""

    # -- what a task fills in ---------------------------------------------------------------------------------------

    @abstractmethod
    def _advance(self, actions: torch.Tensor, ends: torch.Tensor, finite: torch.Tensor) -> None:
        """Move the active rooms by one control step under clipped ``actions`` (N, A) and read every sensor once.

        Fills in ``ends`` (N, ends) bool: which end, if any, this instant is (they may overlap, the order of ``ends``
        decides), and ``finite`` (N,) bool. Where the state is not finite, all that is read stays as it was.
        """

    @abstractmethod
    def _reward_context(self, cause: torch.Tensor) -> Any:
        """What reward terms are handed; ``cause`` (N, causes) bool, exclusive."""

    @abstractmethod
    def _reset(self, mask: torch.Tensor) -> None:
        """Begin a new episode in the masked rooms, whose ``episode`` is zeroed already; read their sensors."""

    @abstractmethod
    def _observe(self) -> TensorDict:
        """A fresh observation from the last reading, by group."""

    @abstractmethod
    def _drawn(self) -> Mapping[str, torch.Tensor]:
        """What was drawn for the episodes under way, by name; live tensors."""

    @abstractmethod
    def _sense(self, mask: torch.Tensor) -> None:
        """Read every sensor once in the masked rooms, in the middle of their episodes."""

    # -- what is the same for all -----------------------------------------------------------------------------------

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """(N,) what the time limit counts. Set it to spread the first episodes' ages; statistics leave those out."""
        return self.episode.age

    @episode_length_buf.setter
    def episode_length_buf(self, ages: torch.Tensor) -> None:
        self.episode.age.copy_(ages)

    def spread_ages(self) -> None:
        """Let the first episodes be of random age, so that their time-outs don't come in one burst."""
        self.episode_length_buf = draw_ages(self.num_envs, self.max_episode_length, self.device, self._source)

    def get_observations(self) -> TensorDict:
        """The current observation, fresh, by group: each (N, width)."""
        return self._observe()

    def restart(self) -> None:
        """Go back to every room's first episode."""
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self.episode.reset(everywhere)
        self.episode.number.zero_()
        self.active.fill_(True)
        self._reset(everywhere)

    def step(self, actions: torch.Tensor) -> Outcome:
        """One control step under ``actions`` (N, A). Returns observation, rewards (N,), dones (N,) bool and extras."""
        if actions.shape != (self.num_envs, self.num_actions):
            raise ValueError(f"actions are {tuple(actions.shape)}, not ({self.num_envs}, {self.num_actions})")
        if not self.cuda_graph:
            return self._step(actions)
        if self._graph is None:
            self._graph = StepGraph(self._step, self.state, self.load)
        return self._graph(actions)

    def _step(self, actions: torch.Tensor) -> Outcome:
        """All of a step, on buffers that stay where they are, without a look at any value: fit to be captured."""
        episode, books, active = self.episode, self._books, self.active
        self._advance(books.take(actions, active), books.ends, books.finite)
        dones, time_outs, terminated, success = books.name_ends()
        context = self._reward_context(books.cause)
        rewards = books.pay(self.reward.values(context, self.num_envs), self.reward.weights)
        final_obs = self._observe()
        extras = {"time_outs": time_outs, "terminated": terminated, "success": success, "final_obs": final_obs}
        if self.auto_reset:
            episode.reset(dones)
            self._reset(dones)
            observation = self._observe()
        else:
            active &= ~dones
            observation = final_obs.clone()
        return observation, rewards, dones, extras

    def interface(self) -> dict[str, Any] | None:
        """What the group ``policy`` and the actions are, see ``navtask.interface``; None where a task doesn't tell."""
        return None

    def pop_statistics(self, merge: Callable[[torch.Tensor], None] = lambda sums: None) -> dict[str, float]:
        """Means over the episodes that ended, their number (``Train/episodes``), and means over all steps, since the
        last call; one host synchronisation.

        ``Physics/dropped``, how often the engine had no room for all that touched in a room, is absent where it had.
        Episode metrics are absent when no counted episode ended. Returns are unscaled. ``merge`` is called on each
        tensor of sums, to add in place those of rooms that other processes step.
        """
        everything = [*self._books.sums.values(), self.physics.dropped]
        for sums in everything:
            merge(sums)
        ended, saturated, (steps,), (dropped,) = (sums.tolist() for sums in everything)
        for sums in everything:
            sums.zero_()
        statistics: dict[str, float] = {}
        if dropped:
            statistics["Physics/dropped"] = float(dropped)
        causes, rewards, length = ended[: len(self.causes)], ended[len(self.causes) : -1], ended[-1]
        episodes = sum(causes)
        if episodes:
            statistics["Train/episodes"] = episodes
            statistics["Train/mean_reward"] = sum(rewards) / episodes
            statistics["Train/mean_episode_length"] = length / episodes
            for name, total in zip(self.reward.names, rewards, strict=True):
                statistics[f"Episode_Reward/{name}"] = total / episodes
            for name, count in zip(self.causes, causes, strict=True):
                statistics[f"Episode_Termination/{name}"] = count / episodes
        if steps:
            for axis, count in zip(self.action_names, saturated, strict=True):
                statistics[f"Policy/action_saturation_{axis}"] = count / steps
        return statistics

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here, as nested dicts of tensors."""
        return {
            "episode": {name: tensor.clone() for name, tensor in self.episode.tensors().items()},
            "drawn": {name: tensor.clone() for name, tensor in self._drawn().items()},
            "physics": self.physics.state(),
            "statistics": {name: tensor.clone() for name, tensor in self._books.sums.items()},
            "active": self.active.clone(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a ``state()`` of an equally configured task."""
        for part, tensors in (
            ("episode", self.episode.tensors()),
            ("drawn", self._drawn()),
            ("statistics", self._books.sums),
        ):
            for name, tensor in tensors.items():
                tensor.copy_(state[part][name])
        self.active.copy_(state["active"])
        self.physics.load(state["physics"])
        self._sense(torch.ones(self.num_envs, dtype=torch.bool, device=self.device))

    @property
    def drawing_failures(self) -> int:
        """How often something could not be drawn as its settings say, over all episodes so far."""
        return 0

    @property
    @abstractmethod
    def action_names(self) -> Sequence[str]:
        """One name for each action axis."""
