"""Confirmation: is a trial that looks better than the baseline better, or was it lucky?

The best of many trials is partly the luckiest. So the best k and the baseline are trained again, on seeds that the
search never saw and that all of them share, and compared on the same rooms. Where k of them are compared, each interval
is made wider for all k to hold together with 95 % (Bonferroni: each holds with 1 - 0.05 / k; unlike Holm's, which names
winners a little more readily, these are still intervals of the differences).
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from orchestrator import files
from orchestrator.config.typed import typed
from orchestrator.errors import UserError
from orchestrator.files import Careful, Damaged
from orchestrator.job.spec import METRICS, ROOMS, TrialSpec
from orchestrator.record import wal
from orchestrator.search import compare
from orchestrator.search.base import Ended, evaluation_set, keep
from orchestrator.search.objective import Judge, Objective
from orchestrator.search.study import StudyTrial

CONFIDENCE = 0.95

FILE = "confirm.json"
"""In the study's folder: what came of it."""


@dataclass(frozen=True)
class Comparison:
    """A trial against the baseline, on fresh seeds."""

    trial: int
    searched: float | None
    """Its objective in the search, where it was picked for it."""
    values: dict[int, float]
    """Seed -> objective."""
    difference: float | None
    """From the baseline, in the objective's own unit, over the rooms in which both have one (of what only a success
    has, those that both succeed in); None where nothing can be compared."""
    low: float | None
    high: float | None
    """Ends of its interval."""
    verdict: str
    """``better``, ``worse`` or ``not shown``; ``failed`` where a training did, ``breaks a constraint``."""
    reason: str | None = None
    rooms: int | None = None
    """That it was compared on; 1: the objective isn't known by room, and the interval is over seeds alone."""


@dataclass(frozen=True)
class Confirmed:
    """What ``confirm.json`` holds."""

    objective: str
    direction: str
    seeds: list[int]
    eval_set_hash: str | None
    confidence: float
    """With which all intervals hold together."""
    baseline: dict[int, float]
    """Seed -> objective."""
    comparisons: list[Comparison]
    winner: int | None
    """The trial that is better than the baseline, by most where several are."""
    words: str


def fresh_seeds(seed: int, taken: Collection[int], count: int) -> list[int]:
    """Seeds that the search hasn't trained with, always the same; more of them begin with the same ones."""
    fresh: list[int] = []
    for i in range(count + len(taken) + 1000):
        drawn = int.from_bytes(hashlib.sha256(f"{seed}/confirm/{i}".encode()).digest()[:4], "big") % 1_000_000
        if drawn not in taken and drawn not in fresh:
            fresh.append(drawn)
        if len(fresh) == count:
            return fresh
    raise AssertionError("a million seeds are not enough")


def best_trials(trials: Sequence[StudyTrial], judge: Judge, top_k: int) -> list[int]:
    """The best trials that finished, the baseline not among them, and broke no constraint; of equals the first."""
    objective = judge.one
    assert objective is not None
    eligible = [t for t in trials if t.number > 0 and t.state == "finished" and t.score and not judge.broken(t.score)]
    return [t.number for t in sorted(eligible, key=lambda t: -objective.sign * _value(t))][:top_k]


def best_of_search(trials: Sequence[StudyTrial], judge: Judge) -> int | None:
    """The best of those that finished and broke no constraint, the baseline among them; of equals the first."""
    objective = judge.one
    assert objective is not None
    eligible = [t for t in trials if t.state == "finished" and t.score and not judge.broken(t.score)]
    return max(eligible, key=lambda t: (objective.sign * _value(t), -t.number)).number if eligible else None


def judge_all(
    judge: Judge,
    seeds: Sequence[int],
    baseline: Ended,
    candidates: Sequence[Ended],
    trials: Sequence[StudyTrial],
    careful: Careful,
) -> Confirmed:
    """Compare trainings on fresh seeds, all of which have ended. Where a room-by-room file can't be read, which
    ``careful`` then knows, seeds alone are compared."""
    objective = judge.one
    assert objective is not None
    searched = {t.number: _value(t) for t in trials if t.score}
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(candidates))
    comparisons = [_compare(judge, baseline, c, searched.get(c.trial.number), confidence, careful) for c in candidates]
    better = [c for c in comparisons if c.verdict == "better"]
    best = max(better, key=lambda c: objective.sign * (c.difference or 0.0), default=None)
    first = best_of_search(trials, judge)
    return Confirmed(
        objective.metric,
        objective.direction,
        list(seeds),
        evaluation_set(baseline.trial.runs[0]) if baseline.trial.runs else None,
        CONFIDENCE,
        _values(judge, baseline),
        comparisons,
        best.trial if best else None,
        _in_words(objective, comparisons, best, first, len(seeds)),
    )


def _compare(
    judge: Judge, baseline: Ended, candidate: Ended, searched: float | None, confidence: float, careful: Careful
) -> Comparison:
    objective = judge.one
    assert objective is not None
    told = Comparison(candidate.trial.number, searched, _values(judge, candidate), None, None, None, "failed")
    for ended, who in ((baseline, "the baseline"), (candidate, "it")):
        if ended.state != "finished":
            return replace(told, reason=f"{who} could not be trained: {ended.reason}")
    sets = {evaluation_set(run) for ended in (baseline, candidate) for run in ended.trial.runs} - {None}
    if len(sets) > 1:
        told_sets = " and ".join(sorted(map(str, sets)))
        return replace(told, verdict="not shown", reason=f"evaluated on sets of different rooms: {told_sets}")
    before, after = compare.in_common(*_tables(objective, judge.window, (baseline, candidate), careful))
    if np.isnan(compare.mean(before)).any():
        why = f"{objective.metric} is undefined with some seeds in all rooms of an evaluation, for one of the two"
        return replace(told, verdict="not shown", reason=why)
    d = compare.paired_difference(after, before, confidence)
    if objective.is_rate:  # no two of them differ by more than 1, whatever Student's t allows for
        d = replace(d, low=max(-1.0, d.low), high=min(1.0, d.high))
    gain = sorted((objective.sign * d.low, objective.sign * d.high))
    verdict = "better" if gain[0] > 0 else "worse" if gain[1] < 0 else "not shown"
    told = replace(told, difference=d.value, low=d.low, high=d.high, verdict=verdict, rooms=after.shape[2])
    broken = judge.broken(candidate.score) if candidate.score else []
    return replace(told, verdict="breaks a constraint", reason=", ".join(broken)) if broken else told


def write(file: Path, confirmed: Confirmed) -> None:
    """Write ``confirm.json``."""
    keep(file, json.dumps(asdict(confirmed), indent=1) + "\n")


def read(file: Path) -> Confirmed:
    """Read ``confirm.json``. Raises FileNotFoundError, or Damaged."""
    plain = files.read_mapping(file, json.loads, "JSON")
    try:
        confirmed: Confirmed = typed(Confirmed, plain, "", {})
    except UserError as error:
        raise Damaged(file, str(error)) from error
    return confirmed


def champion(judge: Judge, winner: Ended) -> TrialSpec:
    """The winner's training that came out best."""
    objective = judge.one
    assert objective is not None
    values = _values(judge, winner)
    return max(winner.trial.runs, key=lambda run: objective.sign * values[run.seed])


def metrics(confirmed: Confirmed) -> dict[str, dict[int, float]]:
    """Differences and their intervals by trial, as metrics of the sweep's run."""
    compared = [c for c in confirmed.comparisons if c.difference is not None]
    return {
        f"Confirm/difference{end}": {c.trial: float(getattr(c, end.lstrip("_") or "difference")) for c in compared}
        for end in ("", "_low", "_high")
    }


def lines(confirmed: Confirmed) -> list[str]:
    """What people are told at the end: the verdict, and each comparison."""
    told = [confirmed.words]
    winner = next((c for c in confirmed.comparisons if c.trial == confirmed.winner), None)
    in_words = winner or _nearest(Objective(confirmed.objective, confirmed.direction, None), confirmed.comparisons)
    for c in confirmed.comparisons:
        if c is in_words:
            continue
        ends = "" if c.difference is None else f"{c.difference:+z.4f} ({c.low:+z.4f} to {c.high:+z.4f})"
        told.append(
            "  " + ", ".join(p for p in (f"trial {c.trial} against the baseline: {c.verdict}", ends, c.reason) if p)
        )
    return told


def _in_words(
    objective: Objective, comparisons: Sequence[Comparison], best: Comparison | None, first: int | None, seeds: int
) -> str:
    """``first``: the best of the search."""
    many = f" for all {len(comparisons)} compared" if len(comparisons) > 1 else ""

    def shown(c: Comparison) -> str:
        interval = f"{100 * CONFIDENCE:.0f} % interval{many} {c.low:+z.4f} to {c.high:+z.4f}"
        return f"{c.difference:+z.4f} {objective.metric} ({interval}) on {seeds} fresh seeds"

    if best is not None and first is not None and first != best.trial:
        who = f"trial {first}" if first else "the baseline"
        won = f"trial {best.trial} was better than the baseline, by {shown(best)}"
        return f"{who} was the best of the search; on fresh seeds {won}"
    if best is not None:
        return f"better than the baseline: trial {best.trial}, by {shown(best)}"
    if not comparisons:
        return "nothing to confirm: no trial but the baseline finished within the constraints"
    nearest = _nearest(objective, comparisons)
    if nearest is None:
        return f"nothing better than the baseline was shown: {comparisons[0].reason}"
    broken = f", but breaks a constraint: {nearest.reason}" if nearest.reason else ""
    return f"nothing better than the baseline was shown: trial {nearest.trial} came to {shown(nearest)}{broken}"


def _nearest(objective: Objective, comparisons: Sequence[Comparison]) -> Comparison | None:
    """The one that came out best; None where nothing could be compared."""
    measured = [c for c in comparisons if c.difference is not None]
    return max(measured, key=lambda c: objective.sign * (c.difference or 0.0), default=None)


def _value(trial: StudyTrial) -> float:
    assert trial.score is not None
    return trial.score.values[0]


def _values(judge: Judge, ended: Ended) -> dict[int, float]:
    scores = {run.seed: judge.score(wal.read(run.folder / METRICS)) for run in ended.trial.runs}
    return {seed: score.values[0] for seed, score in scores.items() if score is not None}


def _tables(objective: Objective, window: int, all_ended: Sequence[Ended], careful: Careful) -> list[compare.Rooms]:
    """Each one's metric (seeds, evaluations, rooms) in the last evaluations; as of one room where no room is known."""

    def rooms_in(file: Path) -> compare.Rooms | None:
        return read_rooms(file, objective.metric, window)

    by_room = [[careful.read(rooms_in, run.folder / ROOMS) for run in e.trial.runs] for e in all_ended]
    shapes = {None if rooms is None else rooms.shape for runs in by_room for rooms in runs}
    if None not in shapes and len(shapes) == 1:
        return [np.stack([rooms for rooms in runs if rooms is not None]) for runs in by_room]
    logs = [[_logged(run.folder, objective.metric) for run in e.trial.runs] for e in all_ended]
    return [np.array([[np.mean(values[-window:])] for values in runs])[:, :, None] for runs in logs]


def read_rooms(file: Path, metric: str, window: int) -> compare.Rooms | None:
    """A metric's (evaluations, rooms) in the last evaluations, of a training's ``eval_rooms.npz``; None where rooms
    aren't known. Raises FileNotFoundError, or Damaged."""
    kind, _, name = metric.partition("/")
    if kind != "Eval":
        return None
    expected = f"expected the arrays of {ROOMS}"
    try:
        with np.load(file, allow_pickle=False) as arrays:
            if name not in arrays.files:
                return None
            rooms = np.asarray(arrays[name][-window:], dtype=np.float64)
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy and zipfile raise whatever the damage leads to
        raise Damaged(file, f"{expected} ({type(error).__name__})") from error
    if rooms.ndim != 2:
        raise Damaged(file, f"{expected}: {name} has not the shape (evaluations, rooms)")
    return rooms


def _logged(folder: Path, metric: str) -> list[float]:
    return [r.metrics[metric] for r in wal.read(folder / METRICS) if metric in r.metrics]
