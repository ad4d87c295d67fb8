"""What ``run=`` names: the folder of a training, or something in it; else it may be the id of a run in MLflow."""

import os
from pathlib import Path

from orchestrator.errors import UserError, nearest
from orchestrator.job.spec import METRICS, SPEC
from orchestrator.search.base import CONFIRM, STUDY

SHOWN = 3
"""Trainings that are named where a folder of several was given."""


def training_folder(source: str) -> Path | None:
    """The folder of a training; None where ``source`` is no path.

    Raises UserError for a folder that holds several, a file, or a path to nothing, naming the nearest that could be
    meant.
    """
    path = Path(source)
    if path.is_dir():
        check_one_training(source)
        return path
    if path.exists():
        raise UserError(f"run={source}: expected the folder of a trial, found a file{_owner(path)}")
    if os.sep in source:
        raise UserError(f"run={source}: no such folder{_nearby(path)}")
    return None


def check_one_training(source: str) -> None:
    """Raise UserError for the folder of a study, of single runs, or of a trial with several seeds."""
    folder = Path(source)
    if any((folder / name).exists() for name in (SPEC, METRICS)):
        return
    within = (f"{above}{own}" for own in ("trial_*", "seed_*") for above in ("", f"{CONFIRM}/"))
    trainings = [found for pattern in within for found in sorted(folder.glob(pattern)) if (found / SPEC).exists()]
    trainings += [] if trainings else sorted(seed.parent for seed in folder.glob(f"*/*/{SPEC}"))
    if trainings or (folder / STUDY).exists():
        what = "a study" if (folder / STUDY).exists() else "a folder of trainings"
        more = f" and {len(trainings) - SHOWN} more" if len(trainings) > SHOWN else ""
        which = f": {', '.join(map(str, trainings[:SHOWN]))}{more}" if trainings else ""
        raise UserError(f"run={source}: {what}, expected one of its trainings{which}")


def _owner(file: Path) -> str:
    """The training whose file this is."""
    for folder in file.absolute().parents[:2]:
        if (folder / SPEC).exists():
            shown = folder if file.is_absolute() else Path(os.path.relpath(folder))
            return f"; did you mean run={shown}?"
    return ""


def _nearby(path: Path) -> str:
    """The part of a path that isn't there, and what is."""
    while not path.parent.is_dir():
        path = path.parent
    beside = [other.name for other in path.parent.iterdir() if other.is_dir()]
    return f": {path.parent} has no '{path.name}'{nearest(path.name, beside)}"
