"""Several objectives: the Pareto front, and how much of the space below it the trials have covered."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from optuna._hypervolume import compute_hypervolume

from orchestrator import files
from orchestrator.config.typed import typed
from orchestrator.errors import UserError
from orchestrator.files import Damaged
from orchestrator.search.base import keep
from orchestrator.search.objective import Judge, Objective
from orchestrator.search.study import StudyTrial

FILE = "front.json"
"""In the study's folder."""

HYPERVOLUME = "Search/hypervolume"
"""The metric of the sweep's run, by trial."""


@dataclass(frozen=True)
class Sought:
    """What is wanted of an objective."""

    direction: str
    worst: float


@dataclass(frozen=True)
class Point:
    """A trial among the others. Every mapping has metrics as keys, but for ``params``: config paths."""

    trial: int
    values: dict[str, float]
    """Of the objectives."""
    spread: dict[str, float]
    """Standard deviation between its seeds; empty with one."""
    constraints: dict[str, float]
    """Of what is constrained; without what could not be measured."""
    params: dict[str, Any]


@dataclass(frozen=True)
class Hypervolume:
    """See ``hypervolume``."""

    corner: dict[str, float]
    by_trial: dict[int, float]


@dataclass(frozen=True)
class Front:
    """What ``front.json`` holds."""

    objectives: dict[str, Sought]
    constraints: list[str]
    front: list[Point]
    baseline: Point | None
    """None where it failed."""
    broken: dict[int, list[str]]
    """Trial that finished -> the constraints that it breaks, and by how much."""
    hypervolume: Hypervolume
    ahead: list[int] = field(default_factory=list)
    """The trials on the front that beat the baseline in one objective at least, and lose to it in none."""

    @property
    def on_front(self) -> list[int]:
        """Numbers of its trials."""
        return [point.trial for point in self.front]


def hypervolume(trials: Sequence[StudyTrial], judge: Judge) -> dict[int, float]:
    """After each trial that finished, the volume between what the trials so far have reached and the corner of the
    ``worst`` values, in the product of the objectives' units (Zitzler & Thiele 1998, PPSN V). Trials that break a
    constraint, or are worse than the corner in one objective, add nothing."""
    signs = np.array([-objective.sign for objective in judge.objectives])
    corner = signs * np.array([objective.worst for objective in judge.objectives], dtype=np.float64)
    reached = np.empty((0, len(corner)))
    volumes = {}
    for trial in trials:
        if trial.state != "finished" or trial.score is None:
            continue
        loss = signs * np.array(trial.score.values)  # to be minimised, as Optuna's function wants it
        if not judge.broken(trial.score) and (loss <= corner).all():
            reached = np.vstack([reached, loss])
        volumes[trial.number] = float(compute_hypervolume(reached, corner))
    return volumes


def describe(front: Sequence[int], trials: Sequence[StudyTrial], judge: Judge) -> Front:
    """Everything there is to say of a front."""
    by_number = {trial.number: trial for trial in trials}
    broken = {t.number: judge.broken(t.score) for t in trials if t.state == "finished" and t.score}
    sought = {o.metric: Sought(o.direction, 0.0 if o.worst is None else o.worst) for o in judge.objectives}
    points = [_point(by_number[number], judge) for number in front]
    baseline = _point(by_number[0], judge) if by_number[0].score else None
    return Front(
        sought,
        [str(constraint) for constraint in judge.constraints],
        points,
        baseline,
        {number: told for number, told in broken.items() if told},
        Hypervolume({metric: s.worst for metric, s in sought.items()}, hypervolume(trials, judge)),
        [p.trial for p in points if baseline is not None and _dominates(p, baseline, judge.objectives)],
    )


def _dominates(point: Point, other: Point, objectives: Sequence[Objective]) -> bool:
    gains = [o.sign * (point.values[o.metric] - other.values[o.metric]) for o in objectives]
    return min(gains) >= 0 and max(gains) > 0


def write(file: Path, described: Front) -> None:
    """Write ``front.json``."""
    keep(file, json.dumps(asdict(described), indent=1) + "\n")


def read(file: Path) -> Front:
    """Read ``front.json``. Raises FileNotFoundError, or Damaged."""
    plain = files.read_mapping(file, json.loads, "JSON")
    try:
        described: Front = typed(Front, plain, "", {})
    except UserError as error:
        raise Damaged(file, str(error)) from error
    metrics = described.objectives.keys()
    for point in (*described.front, *([described.baseline] if described.baseline else [])):
        if point.values.keys() != metrics:
            raise Damaged(file, f"the values of trial {point.trial}: expected {', '.join(metrics)}")
    return described


def headline(described: Front) -> str:
    """The front in one line."""
    within = f" within {' and '.join(described.constraints)}" if described.constraints else ""
    if not described.front:
        return f"Pareto front: empty, no trial finished{within}"
    count = len(described.front)
    return (
        f"Pareto front: {count} trial{'s'[: count != 1]}{within} that no other beats in one objective without losing "
        "in another"
    )


def lines(described: Front) -> list[str]:
    """What people are told at the end."""
    told = [headline(described)]
    told += _table(described)
    told.append(baseline_stands(described))
    told += [
        f"  trial {number} is not on it: breaks {', '.join(broken)}"
        for number, broken in described.broken.items()
        if number > 0
    ]
    told.append("one search, one set of seeds: a difference within the noise of the seed is none")
    return told


def baseline_stands(described: Front) -> str:
    """How the baseline stands to the front."""
    who = "the baseline (trial 0)"
    if described.baseline is None:
        return f"{who} failed, so there is nothing to compare with"
    if 0 in described.broken:
        return f"{who} breaks {', '.join(described.broken[0])}, so it can't be on the front"
    if 0 in described.on_front:
        alone = "alone: nothing better was found" if len(described.front) == 1 else "none beats it in everything"
        return f"{who} is on the front, {alone}"
    ahead = ", ".join(map(str, described.ahead))
    return f"{who} is not on the front" + (f": trial {ahead} is at least as good in everything" if ahead else "")


def _table(described: Front) -> list[str]:
    """The trials of the front, and the baseline first."""
    points = [*described.front]
    if described.baseline is not None and 0 not in described.on_front:
        points.insert(0, described.baseline)
    if not points:
        return []
    bounded = list(described.front[0].constraints) if described.front else []
    bounded = [metric for metric in bounded if metric not in described.objectives]
    heads = [("trial", "")]
    heads += [(metric.rpartition("/")[2], sought.direction) for metric, sought in described.objectives.items()]
    bounds = {metric: bound for metric, _, bound in (told.partition(" ") for told in described.constraints)}
    heads += [(metric.rpartition("/")[2], bounds.get(metric, "")) for metric in bounded]
    cells = [[head for head, _ in heads], [what for _, what in heads]]
    worst = False
    for point in points:
        row = [f"{point.trial}{' (baseline)' if point.trial == 0 else ''}"]
        for metric, value in point.values.items():
            as_bad = value == described.objectives[metric].worst
            worst |= as_bad
            row.append(f"{value:z.4f}{'*' if as_bad else ''}")
        row += [f"{point.constraints[m]:z.4f}" if m in point.constraints else "" for m in bounded]
        cells.append(row)
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    told = ["  " + "  ".join([r[0].ljust(widths[0]), *map(str.rjust, r[1:], widths[1:])]).rstrip() for r in cells]
    if worst:
        told.append("  * the worst that there is; also told where it could not be measured, as without any success")
    return told


def _point(trial: StudyTrial, judge: Judge) -> Point:
    assert trial.score is not None
    bounded = zip(judge.constraints, trial.score.bounded, strict=False)
    return Point(
        trial.number,
        dict(zip((o.metric for o in judge.objectives), trial.score.values, strict=True)),
        dict(zip((o.metric for o in judge.objectives), trial.spread, strict=False)),
        {constraint.metric: value for constraint, value in bounded if value == value},
        dict(trial.values),
    )


def again(described: Front, ready: Mapping[int, Path]) -> tuple[str, str] | None:
    """Which of the front to train again, by which override, where configs lie ``ready`` by trial: another than the
    baseline, whose config is today's."""
    for number in [*(n for n in described.on_front if n > 0), *(n for n in described.on_front if n == 0)]:
        if number in ready:
            whose = f"trial {number} of the front" if number > 0 else "the baseline, alone on the front,"
            return whose, f"+front={ready[number].stem}"
    return None
