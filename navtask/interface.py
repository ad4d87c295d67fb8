"""The interface of a policy: what it is fed and what its actions mean, as data for whoever runs it elsewhere.

Each observation term declares beside its function what is measured and how that becomes its values; ``describe`` puts
them in the policy's order. ``navtask.numpy_policy`` goes by this description on a robot, and documents it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from navtask.numpy_policy import TRANSFORMS


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a term shows, and how it is made of it."""

    input: str
    """Name of the quantity that is measured. ``action``: the last action, which whoever runs the policy knows."""
    unit: str
    """Of the quantity; "1" where it has none."""
    meaning: str
    width: int | None = None
    """Numbers of the quantity; None: as many as the term has values."""
    transform: str = "linear"
    """One of ``navtask.numpy_policy.TRANSFORMS``."""
    scale: float = 1.0
    offset: float | Sequence[float] = 0.0
    """For all numbers, or for each."""
    details: Mapping[str, float] = field(default_factory=dict)
    """What else there is to know, by the names that ROS has for it where it has one."""


@dataclass(frozen=True)
class Axis:
    """An axis of the action: the command is the action, clipped to [-1, 1], times ``scale``."""

    name: str
    unit: str
    scale: float
    meaning: str


def describe(
    task: str,
    terms: Iterable[tuple[str, Measured, int, int]],
    axes: Sequence[Axis],
    *,
    control_dt: float,
    goal_radius: float,
    history: int = 1,
) -> dict[str, Any]:
    """The interface as plain data, fit for JSON. ``terms``: name, what it shows, place of its first value, width."""
    shown: list[dict[str, Any]] = []
    for name, measured, start, width in terms:
        shown.append(
            {
                "name": name,
                "start": start,
                "width": width,
                "input": measured.input,
                "input_width": width if measured.width is None else measured.width,
                "unit": measured.unit,
                "meaning": measured.meaning,
                "transform": measured.transform,
                "formula": TRANSFORMS[measured.transform].formula,
                "scale": measured.scale,
                "offset": measured.offset,
                **measured.details,
            }
        )
    width = sum(term["width"] for term in shown)
    return {
        "task": task,
        "control_dt": control_dt,
        "goal_radius": goal_radius,
        "observation": {"width": width * history, "history": history, "terms": shown},
        "action": {"axes": [asdict(axis) for axis in axes]},
    }
