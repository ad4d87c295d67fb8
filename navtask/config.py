"""What every task can be told. The numbers themselves are in ``conf/task/``.

Importing this module is cheap (no torch), so that a settings mistake is told at once.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from navtask.errors import ConfigError

if TYPE_CHECKING:
    from navtask.registry import Terms


@dataclass(kw_only=True)
class ObservationTermConfig:
    """One term of the observation."""

    enabled: bool = True
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class RewardTermConfig:
    """One term of the reward."""

    weight: float
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class TaskConfig:
    """What all tasks have in common; each adds its own."""

    name: str
    control_dt: float
    """Time between two actions, s."""
    physics_dt: float
    """Physics step, s; ``control_dt`` is a multiple of it."""
    episode_length: float
    """Time limit of an episode, s."""
    goal_radius: float
    """The goal is reached within this distance of it, m."""
    goal_distance_scale: float
    """Distance that the observation shows as 1, m."""
    reward_scale: float
    """The reward handed to the learner is the weighted sum times this; everything logged is unscaled."""
    observations: dict[str, ObservationTermConfig]
    rewards: dict[str, RewardTermConfig]


def check(condition: bool, key: str, value: object, expected: str) -> None:
    """Raise ConfigError unless ``condition`` holds."""
    if not condition:
        raise ConfigError(key, value, expected)


def validate_task(config: TaskConfig, terms: "Terms") -> None:
    """Raise ConfigError, naming key, value and what was expected, for a mistake in what all tasks have in common.

    Checks names and parameters against the task's registries, so it imports the terms (and torch).
    """
    from navtask.registry import check_params

    check(0 < config.physics_dt <= 0.05, "task.physics_dt", config.physics_dt, "above 0, at most 0.05 s")
    substeps = config.control_dt / config.physics_dt
    check(
        substeps >= 1 and abs(substeps - round(substeps)) < 1e-6,
        "task.control_dt",
        config.control_dt,
        f"a multiple of task.physics_dt={config.physics_dt:g}",
    )
    check(
        2 * config.control_dt <= config.episode_length <= 1e5 * config.control_dt,
        "task.episode_length",
        config.episode_length,
        "2 to 100,000 control steps",
    )
    for name in ("goal_radius", "goal_distance_scale", "reward_scale"):
        value = getattr(config, name)
        check(0 < value < math.inf, f"task.{name}", value, "above 0, and finite")
    for name, term in config.observations.items():
        check_params(terms.observations.get(name, "task.observations"), term.params, f"task.observations.{name}.params")
    check(
        any(t.enabled and terms.observations.get(n).group == "policy" for n, t in config.observations.items()),
        "task.observations",
        "none enabled",
        "at least one DEPLOYABLE term for the actor",
    )
    for name, reward in config.rewards.items():
        registered = terms.rewards.get(name, "task.rewards")
        check(
            isinstance(reward.weight, int | float) and math.isfinite(reward.weight),
            f"task.rewards.{name}.weight",
            reward.weight,
            "a finite number",
        )
        check_params(registered, reward.params, f"task.rewards.{name}.params")
    check(bool(config.rewards), "task.rewards", "{}", "at least one reward term")
