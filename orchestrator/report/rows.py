"""What a report knows of each trial, read from the folders of its trainings."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy import stats

from orchestrator.files import Careful, Damaged
from orchestrator.job.spec import METRICS, ROOMS
from orchestrator.record import wal
from orchestrator.report import diagnosis
from orchestrator.report.diagnosis import DIAGNOSIS
from orchestrator.search import compare
from orchestrator.search.base import Ended
from orchestrator.search.confirm import read_rooms
from orchestrator.search.objective import Judge, Objective, summarise


@dataclass(frozen=True)
class Row:
    """A trial of the search, or its confirmation."""

    number: int
    state: str
    reason: str | None
    params: Mapping[str, Any]
    values: tuple[float, ...] | None
    """Of the objectives."""
    spread: tuple[float, ...]
    """Between the seeds of the trial."""
    broken: Sequence[str]
    """The constraints that it breaks."""
    interval: tuple[float, float] | None
    """95 %, of the only objective's mean over rooms, in the evaluations that it is measured by; where there is one
    training."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the frozen evaluation: the mean over the last ones and over trainings, as the objective is."""
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    """Evaluation metric -> (iteration, value), of the first training."""
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """Diagnosis code -> words, of all trainings."""
    folders: Sequence[Path] = ()
    unread: Sequence[str] = ()
    """Names of its files that could not be read, or not as a whole."""

    @property
    def value(self) -> float | None:
        """The only objective."""
        return self.values[0] if self.values and len(self.values) == 1 else None


def rows(trials: Iterable[Ended], judge: Judge, careful: Careful) -> list[Row]:
    """In the order of ``trials``. What can't be read is left out, and ``careful`` knows it then."""
    return [_row(ended, judge, careful) for ended in trials]


def _row(ended: Ended, judge: Judge, careful: Careful) -> Row:
    folders = [run.folder for run in ended.trial.runs]
    if ended.state == "finished":
        for file in (folder / name for folder in folders for name in (METRICS, DIAGNOSIS)):
            if not file.exists():
                careful.note(Damaged(file, "it is missing"))
    logs = [
        careful.read(lambda path: _log(path, ended.state == "finished", careful), folder / METRICS) or []
        for folder in folders
    ]
    attached = [careful.read(diagnosis.read, folder / DIAGNOSIS) or {} for folder in folders]
    evaluated = [_evaluations(log) for log in logs]
    names = {name for curves in evaluated for name in curves}
    means = {}
    for name in names:
        each = [summarise([v for _, v in curves.get(name, ())], judge.window) for curves in evaluated]
        known = [value for value in each if value is not None]
        if len(known) == len(each):  # a mean over fewer seeds would be told as one over all
            means[name] = math.fsum(known) / len(known)
    interval = None
    if judge.one is not None and ended.state == "finished" and len(folders) == 1:
        interval = _interval(folders[0] / ROOMS, judge.one, judge.window, careful)
    return Row(
        number=ended.trial.number,
        state=ended.state,
        reason=ended.reason,
        params=ended.params,
        values=ended.score.values if ended.score else None,
        spread=ended.spread,
        broken=judge.broken(ended.score) if ended.score else [],
        interval=interval,
        metrics=means,
        curves=evaluated[0] if evaluated else {},
        verdicts=diagnosis.worst(attached),
        folders=folders,
        unread=[name for name in (METRICS, DIAGNOSIS) if any(careful.why_not(folder / name) for folder in folders)],
    )


def _interval(file: Path, objective: Objective, window: int, careful: Careful) -> tuple[float, float] | None:
    """That of what a trial is judged by; None where its rooms aren't known."""
    rooms = careful.read(lambda path: read_rooms(path, objective.metric, window), file)
    found = compare.interval(rooms) if rooms is not None else None
    if found is None:
        return None
    return (max(0.0, found.low), min(1.0, found.high)) if objective.is_rate else (found.low, found.high)


def _log(path: Path, finished: bool, careful: Careful) -> list[wal.Record]:
    """The records of a log. Lines that are none are left out, and noted; so is a log without any, but for a training
    that may have ended before its first iteration."""
    tail = wal.Tail(path)
    try:
        records = tail.read()
    finally:
        tail.close()
    if tail.skipped_lines:
        lines = "one line is no record" if tail.skipped_lines == 1 else f"{tail.skipped_lines} lines are no records"
        careful.note(Damaged(path, f"{lines} and left out"))
    elif finished and not records and path.exists():
        careful.note(Damaged(path, "expected at least one whole line"))
    return records


def _evaluations(log: Sequence[wal.Record]) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for record in log:
        for name, value in record.metrics.items():
            if name.startswith("Eval") and not name.endswith(("_low", "_high")) and math.isfinite(value):
                curves.setdefault(name, []).append((record.step, value))
    return curves


def spearman(x: Sequence[float], y: Sequence[float | None]) -> tuple[float, bool]:
    """Rank correlation over the pairs that are complete, and whether it differs from 0 with 95 %; nan of too few."""
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
    if len(pairs) < 8 or len({a for a, _ in pairs}) < 2 or len({b for _, b in pairs}) < 2:
        return math.nan, False
    result = stats.spearmanr(*zip(*pairs, strict=True))
    return float(result.statistic), bool(result.pvalue < 0.05)
