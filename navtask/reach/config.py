"""The settings of the reaching task. The numbers themselves are in ``conf/task/``.

Importing this module is cheap (no torch), so that a settings mistake is told at once.
"""

import math
from dataclasses import dataclass

from navtask.config import TaskConfig, check, validate_task


@dataclass(kw_only=True)
class TargetsConfig:
    """What an episode draws: a point in a box, and a start posture."""

    name: str
    """What reports call targets of this kind."""
    centre: list[float]
    """Of the box, in the base's frame, m."""
    half_size: list[float]
    """Of the box, along the base's axes, m."""
    start_spread: float
    """Greatest distance of each joint from the home posture at the start, rad."""


@dataclass(kw_only=True)
class ReachConfig(TaskConfig):
    """The whole task."""

    targets: TargetsConfig


def validate_targets(targets: TargetsConfig, key: str = "task.targets") -> None:
    """Raise ConfigError unless targets can be drawn from these settings, and be reached as far as lengths tell."""
    from navtask.reach.arm import read_arm

    arm = read_arm()
    for name, least in (("centre", -math.inf), ("half_size", 0.0)):
        values = getattr(targets, name)
        expected = "three finite lengths in m, [x, y, z]" + (", none below 0" if least == 0 else "")
        check(
            len(values) == 3 and all(map(math.isfinite, values)) and min(values) >= least,
            f"{key}.{name}",
            values,
            expected,
        )
    farthest = math.hypot(
        *(
            abs(centre - shoulder) + half
            for centre, half, shoulder in zip(targets.centre, targets.half_size, arm.shoulder, strict=True)
        )
    )
    x, y, z = arm.shoulder
    check(
        farthest <= arm.reach,
        f"{key}.half_size",
        targets.half_size,
        f"a box within {arm.reach:.2f} m, the arm's reach, of its shoulder at ({x:g}, {y:g}, {z:g}); a corner is "
        f"{farthest:.2f} m away",
    )
    room = min(*(arm.upper - arm.home), *(arm.home - arm.lower))
    check(
        0 <= targets.start_spread <= room,
        f"{key}.start_spread",
        targets.start_spread,
        f"0 to {room:.2f} rad, what the home posture leaves to the joints' limits",
    )


def validate(config: ReachConfig) -> None:
    """Raise ConfigError, naming key, value and what was expected, when the task cannot be built from ``config``.

    Checks names and parameters against the registries, so it imports the terms (and torch).
    """
    from navtask.reach.terms import TERMS

    validate_targets(config.targets)
    validate_task(config, TERMS)
