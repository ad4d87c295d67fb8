"""Several objectives: the Pareto front, and how much of the space below it the trials have covered."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from optuna._hypervolume import compute_hypervolume

from orchestrator.search.base import keep
from orchestrator.search.objective import Judge
from orchestrator.search.study import StudyTrial

FILE = "front.json"
"""In the study's folder."""

HYPERVOLUME = "Search/hypervolume"
"""The metric of the sweep's run, by trial."""


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


def describe(front: Sequence[int], trials: Sequence[StudyTrial], judge: Judge) -> dict[str, Any]:
    """What ``front.json`` holds."""
    by_number = {trial.number: trial for trial in trials}
    broken = {t.number: judge.broken(t.score) for t in trials if t.state == "finished" and t.score}
    return {
        "objectives": {o.metric: {"direction": o.direction, "worst": o.worst} for o in judge.objectives},
        "constraints": [str(constraint) for constraint in judge.constraints],
        "front": [_point(by_number[number], judge) for number in front],
        "baseline": _point(by_number[0], judge) if by_number[0].score else None,
        "broken": {number: told for number, told in broken.items() if told},
        "hypervolume": {
            "corner": {o.metric: o.worst for o in judge.objectives},
            "by_trial": hypervolume(trials, judge),
        },
    }


def write(file: Path, described: Mapping[str, Any]) -> None:
    """Write ``front.json``."""
    keep(file, json.dumps(described, indent=1) + "\n")


def lines(described: Mapping[str, Any]) -> list[str]:
    """What people are told at the end."""
    points = [*described["front"]]
    trials = f"{len(points)} trial{'s'[: len(points) != 1]}"
    told = [f"Pareto front: {trials}" if points else "Pareto front: empty, no trial finished within the constraints"]
    baseline, corner = described["baseline"], described["hypervolume"]["corner"]
    if baseline is not None and all(point["trial"] != 0 for point in points):
        told.append(f"  baseline (trial 0)  {_shown(baseline, corner)}")
    told += [f"  trial {p['trial']}{' (baseline)' if p['trial'] == 0 else ''}  {_shown(p, corner)}" for p in points]
    told.append("  one search, one set of seeds: a difference within the noise of the seed is none")
    return told


def _shown(point: dict[str, Any], corner: dict[str, float]) -> str:
    return ", ".join(
        f"{metric} {value:.4f}{' (undefined, or as bad)' if value == corner[metric] else ''}"
        for metric, value in point["values"].items()
    )


def _point(trial: StudyTrial, judge: Judge) -> dict[str, Any]:
    assert trial.score is not None
    bounded = zip(judge.constraints, trial.score.bounded, strict=False)
    return {
        "trial": trial.number,
        "values": dict(zip((o.metric for o in judge.objectives), trial.score.values, strict=True)),
        "spread": dict(zip((o.metric for o in judge.objectives), trial.spread, strict=False)),
        "constraints": {constraint.metric: value for constraint, value in bounded if value == value},
        "params": dict(trial.values),
    }
