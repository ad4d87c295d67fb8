"""Trials that are being trained, and their jobs: how far they are, and how they stand."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.job.spec import METRICS, TrialSpec
from orchestrator.launch.base import Handle
from orchestrator.record import wal
from orchestrator.search.base import Trial
from orchestrator.search.objective import SUCCESS
from orchestrator.status import View


@dataclass
class LiveTrial:
    """A trial under way, all its trainings together."""

    trial: Trial
    view: View
    waiting: list[TrialSpec]
    """Trainings that have no job yet, or none any more."""
    over: str | None = None
    """Why the rest of it isn't trained: it was pruned, or a seed failed."""
    _steps: dict[int, int] = field(default_factory=dict)
    """Seed -> iteration."""
    _successes: dict[int, float] = field(default_factory=dict)
    """Seed -> success rate, the newest."""
    _standings: dict[int, dict[int, float]] = field(default_factory=dict)
    """Seed -> iteration -> objective, as if it had ended there."""

    def advance(self, seed: int, record: wal.Record) -> None:
        """Show that a seed has got further."""
        self._steps[seed] = record.step
        if SUCCESS in record.metrics:
            self._successes[seed] = record.metrics[SUCCESS]
            self.view.success = sum(self._successes.values()) / len(self._successes)
        self.view.step = sum(self._steps.values())
        if self.view.state == "starting":
            self.view.state = "running"

    def stand(self, seed: int, step: int, value: float) -> float | None:
        """Note how a seed stands after ``step`` iterations; the mean over all seeds, once all have got so far."""
        self._standings.setdefault(seed, {})[step] = value
        known = [by_step[step] for by_step in self._standings.values() if step in by_step]
        return sum(known) / len(known) if len(known) == len(self.trial.runs) else None


@dataclass
class Job:
    """A training under way."""

    spec: TrialSpec
    live: LiveTrial
    handle: Handle
    """The launcher's."""
    stopped: str | None = None
    """Why the driver stopped it: ``prune``, ``hang`` or ``interrupt``; ``adopted``: it had ended before."""
    reason: str | None = None
    records: list[wal.Record] = field(default_factory=list)
    """Those that the objective is measured by."""

    def __post_init__(self) -> None:
        self._tail = wal.Tail(self.spec.folder / METRICS)
        self._last_sign = time.monotonic()

    def read(self) -> Sequence[wal.Record]:
        """What it has written since the last look."""
        new = self._tail.read()
        if new:
            self._last_sign = time.monotonic()
        return new

    def silent_for(self) -> float:
        """Seconds without a sign of life."""
        return time.monotonic() - self._last_sign

    def close(self) -> None:
        """Read no more."""
        self._tail.close()
