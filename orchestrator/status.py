"""What there is to see of a search while it runs."""

import time
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class View:
    """A trial as people see it."""

    number: int
    total: int
    """Iterations in all."""
    state: str = "starting"
    """``starting``, ``running``, ``stopping``, ``finished``, ``pruned``, ``failed`` or ``interrupted``."""
    step: int = 0
    success: float | None = None
    """The newest."""
    value: float | None = None
    """Its objective, once it has ended."""
    reason: str | None = None
    began: float | None = None
    """Monotonic; None for a trial of an earlier driver."""
    seconds: float | None = None
    """That it took."""


class Screen(Protocol):
    """Where people look; see ``orchestrator.terminal``."""

    def show(self, status: "Status") -> None:
        """Bring the table up to date; called every tick."""

    def note(self, line: str) -> None:
        """Say something once."""

    def close(self) -> None:
        """Leave the terminal as it was."""


@dataclass
class Status:
    """Everything that there is to see."""

    total: int
    slots: int
    objective: str
    direction: str
    views: dict[int, View] = field(default_factory=dict)
    baseline: float | None = None
    best: tuple[int, float] | None = None
    """Trial and objective."""
    preparing: bool = True
    stopping: bool = False

    def ended(self) -> list[View]:
        """Trials that count as done."""
        return [view for view in self.views.values() if view.state in ("finished", "pruned", "failed")]

    def time_left(self) -> float | None:
        """Seconds, estimated from the trials of this driver; None as long as there is nothing to go by."""
        now = time.monotonic()
        took = [v.seconds for v in self.ended() if v.seconds is not None and v.state == "finished"]
        live = [v for v in self.views.values() if v.state in ("starting", "running") and v.began is not None]
        for view in live:
            if view.step >= 0.1 * view.total and view.began is not None:
                took.append((now - view.began) * view.total / view.step)
        if not took:
            return None
        typical = sum(took) / len(took)
        work = sum(typical * (1 - v.step / v.total) for v in live) + typical * (
            self.total - len(self.ended()) - len(live)
        )
        return max(0.0, work / max(1, min(self.slots, self.total - len(self.ended()))))
