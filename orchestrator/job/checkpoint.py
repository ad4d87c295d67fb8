"""Checkpoints: written aside and renamed, the last two kept, read without executing anything."""

import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import torch

from orchestrator.job.spec import CHECKPOINTS

KEEP = 2


def save(folder: Path, iteration: int, state: dict[str, Any]) -> Path:
    """Write ``checkpoints/model_<iteration>.pt`` of a trial's folder; older ones go. Raises OSError (disk full)."""
    directory = folder / "checkpoints"
    directory.mkdir(exist_ok=True)
    path = directory / f"model_{iteration:06d}.pt"
    aside = directory / f".{path.name}.{os.getpid()}"
    whole = io.BytesIO()  # written in one go, so that a full disk is told as such, and not in torch's words
    torch.save({"iteration": iteration, **state}, whole)
    try:
        with open(aside, "wb") as file:
            file.write(whole.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    for old in _all(folder)[:-KEEP]:
        old.unlink(missing_ok=True)
    return path


def latest(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that can be read, or None, on the CPU whatever device wrote it.

    One that is damaged is passed over for the one before.
    """
    for path in reversed(_all(folder)):
        try:
            state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
            return state
        except Exception as error:  # torch raises whatever the damage leads to
            print(
                f"checkpoint {path.name} can't be read ({type(error).__name__}); trying the one before", file=sys.stderr
            )
    return None


def _all(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob(CHECKPOINTS) if re.fullmatch(r"model_\d+\.pt", p.name))
