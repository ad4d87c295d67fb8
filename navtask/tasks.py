"""The tasks by name, and what there is to know of one before it is built."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_type_hints

from navtask.errors import ConfigError

if TYPE_CHECKING:  # importing a definition is cheap: no torch, no engine
    from navtask.contract import VecTask
    from navtask.evaluation import Evaluator, Policy

BUILT_IN = {"nav": "navtask.nav.task:Nav", "reach": "navtask.reach.task:Reach"}

PLUGINS = "navtask.tasks"
"""Entry point group by which an installed package brings tasks of its own: name = "package.module:Class". A config can
name a task, but never a module: reading a stranger's imports nothing of his."""

FROZEN_SEED = 0
"""Of every frozen set; its stream, not its seed, keeps it apart from training."""


class TaskDefinition(ABC):
    """A task from outside: its settings, what it measures, and how it is made."""

    name: str
    config: type
    """Dataclass of its settings, all keyword-only; ``name`` is one of them."""
    world: str
    """The field of ``config``, itself a dataclass with a ``name``, that says what is drawn anew each episode. A frozen
    set is one of these and a number."""
    metrics: Mapping[str, str]
    """What its evaluator measures, ``success_rate`` among it: name -> what it means, with its unit and its source."""
    better: Mapping[str, str] = MappingProxyType({})
    """Metric -> ``more`` or ``less``, whichever is better; a metric that is not here may be sought either way."""
    causes: Sequence[str]
    """How an episode can end; as ``VecTask.causes``."""
    groups: Sequence[str] = ("policy", "privileged")
    """Observation groups; ``policy`` is what a real robot has."""
    symmetric: bool = False
    """Whether ``VecTask.mirror_maps`` exists."""
    planners: Sequence[str] = ()
    """Policies that need no learning, to compare with; see ``make_planner``."""

    @property
    def world_type(self) -> type:
        """Dataclass of ``world``."""
        found = get_type_hints(self.config)[self.world]
        assert isinstance(found, type)
        return found

    @abstractmethod
    def validate(self, config: Any) -> None:
        """Raise ConfigError, naming key, value and what was expected, when the task can't be built from ``config``."""

    @abstractmethod
    def validate_world(self, world: Any, key: str) -> None:
        """The same for a world on its own, which stands at ``key``."""

    @abstractmethod
    def make_env(
        self,
        config: Any,
        *,
        num_envs: int,
        seed: int,
        device: str = "cpu",
        backend: str = "mujoco_c",
        threads: int = 1,
        privileged: bool = False,
        auto_reset: bool = True,
        stream: int = 0,
        first_room: int = 0,
    ) -> "VecTask":
        """Rooms ``first_room`` to ``first_room + num_envs - 1`` of ``seed`` and ``stream``; see ``navtask.random``."""

    @abstractmethod
    def evaluator(self, env: Any) -> "Evaluator":
        """What judges policies in the frozen rooms of ``env``."""

    def make_evaluator(self, config: Any, world: Any, num_rooms: int, **settings: Any) -> "Evaluator":
        """The first ``num_rooms`` frozen rooms of ``world``; ``settings`` are those of ``make_env``."""
        from navtask.random import FROZEN

        config = replace(config, **{self.world: world})
        frozen = {"seed": FROZEN_SEED, "stream": FROZEN, "auto_reset": False}
        return self.evaluator(self.make_env(config, num_envs=num_rooms, **frozen, **settings))

    def make_planner(self, name: str, config: Any) -> "Policy":
        """One of ``planners``, for the task's observations. Raises ConfigError when these lack what it looks at."""
        raise NotImplementedError(f"the task {self.name} has no planner")


def names() -> list[str]:
    """Every task that there is."""
    return [*BUILT_IN, *(point.name for point in entry_points(group=PLUGINS))]


def get(name: str) -> TaskDefinition:
    """The task of that name; ConfigError when there is none."""
    where = BUILT_IN.get(name)
    if where is None:
        where = next((point.value for point in entry_points(group=PLUGINS) if point.name == name), None)
    if where is None:
        raise ConfigError("task.name", name, "a task: " + ", ".join(names()), names())
    module, _, attribute = where.partition(":")
    definition = getattr(importlib.import_module(module), attribute)()
    assert isinstance(definition, TaskDefinition)
    return definition
