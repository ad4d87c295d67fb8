"""What there is to see of a search while it runs."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.search.base import Ended
from orchestrator.search.objective import Judge, Objective


@dataclass
class View:
    """A trial as people see it, all its trainings together."""

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
    runs: int = 1
    """Trainings, with a seed each."""
    confirms: bool = False
    """Trained again, on fresh seeds."""
    values: tuple[float, ...] = ()
    """Where there are several objectives."""
    broken: Sequence[str] = ()
    """The constraints that it breaks, and by how much."""
    mistaken: bool = False
    """It failed by what is the user's to mend."""


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
    """Trials of the search."""
    slots: int
    objectives: Sequence[Objective]
    window: int = 3
    """An objective is the mean over so many last evaluations."""
    runs: int = 1
    """Trainings of a trial."""
    confirmations: int = 0
    """Trials that are trained again on fresh seeds."""
    fresh_seeds: int = 0
    """With how many."""
    views: dict[str, View] = field(default_factory=dict)
    """By the trial's name."""
    baseline: float | None = None
    best: tuple[int, float] | None = None
    """Trial and objective, among those that break no constraint."""
    findings: Sequence[str] = ()
    """What the search has come to, when all is done."""
    again: tuple[str, str] | None = None
    """Whose config lies ready to be trained again, and by which override."""
    verdicts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Folder of a training that has ended -> code -> level and words of what its curves show."""
    preparing: bool = True
    stopping: bool = False

    def count(self, view: View, ended: Ended, judge: Judge) -> None:
        """Show what a trial came to; keep the best."""
        objective, score = judge.one, ended.score
        if score is None:
            return
        if objective is None:
            view.values = score.values
        else:
            view.value = score.values[0]
        view.broken = broken = judge.broken(score) if ended.state == "finished" else []
        if broken:
            view.reason = f"breaks {', '.join(broken)}"
        if objective is None or view.confirms or ended.state != "finished":
            return
        if view.number == 0:
            self.baseline = view.value
        number, value = self.best or (view.number, None)
        # Of equals the first trial is the best, whichever ended first.
        first_of_equals = score.values[0] == value and view.number < number
        if not broken and (first_of_equals or objective.better(score.values[0], value)):
            self.best = (view.number, score.values[0])

    @property
    def sought(self) -> str:
        """The objectives by their names."""
        return ", ".join(objective.metric for objective in self.objectives)

    def ended(self, confirms: bool = False) -> list[View]:
        """Trials that count as done."""
        done = ("finished", "pruned", "failed")
        return [view for view in self.views.values() if view.state in done and view.confirms == confirms]

    def trainings_left(self) -> float:
        """Of search and confirmation; one under way counts by what is left of it."""
        live = [v for v in self.views.values() if v.state in ("starting", "running", "stopping")]
        begun = [len(self.ended(confirms)) + sum(v.confirms == confirms for v in live) for confirms in (False, True)]
        to_come = max(0, self.total - begun[0]) * self.runs + max(0, self.confirmations - begun[1]) * self.fresh_seeds
        return to_come + sum(v.runs * (1 - v.step / v.total) for v in live)

    def time_left(self) -> float | None:
        """Seconds, estimated from the trials of this driver; None as long as there is nothing to go by."""
        now = time.monotonic()
        took = []
        for view in self.views.values():
            at_once = min(view.runs, self.slots) / view.runs  # a trial of several trainings has several slots
            if view.state == "finished" and view.seconds is not None:
                took.append(view.seconds * at_once)
            elif view.state in ("starting", "running") and view.began is not None and view.step >= 0.1 * view.total:
                took.append((now - view.began) * view.total / view.step * at_once)
        if not took:
            return None
        left = self.trainings_left()
        return max(0.0, left * sum(took) / len(took) / max(1, min(self.slots, math.ceil(left))))
