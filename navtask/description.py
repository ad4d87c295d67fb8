"""What a task may tell of itself to whoever examines it from outside, say its doctor."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Shown:
    """Where a term's newest values stand in its observation group, and what they are."""

    name: str
    start: int
    width: int
    ranges: bool = False
    """Whether they are free distances in directions evenly over 360 degrees, 0 at the body's centre."""
    answers: Sequence[str] = ()
    """Name of the action axis that each value is the effect of, 1 for a full action, once that has been held; empty for
    a term that isn't such an answer."""


class Described(ABC):
    """A task that tells what its observation's values are, and where its things are."""

    action_range = (-1.0, 1.0)
    """Of every action axis; the whole of it has an effect."""

    @abstractmethod
    def terms(self) -> dict[str, list[Shown]]:
        """The terms of each observation group, in order."""

    @abstractmethod
    def scene(self) -> dict[str, torch.Tensor]:
        """Where things are at this instant, each (N, ...): ``body``, ``goal`` and whatever else an episode's beginning
        draws anew. Read from where they take effect, not from where they were drawn."""
