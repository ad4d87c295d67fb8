"""What the driver asks for trials: a sweep's study, or the one trial of a single run."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.job.spec import RESULT, TrialSpec, write_aside


@dataclass(frozen=True)
class Ended:
    """A trial that has ended."""

    number: int
    state: str
    """``finished``, ``pruned`` or ``failed``."""
    value: float | None
    """The objective; of a pruned one, where it stood."""
    reason: str | None
    spec: TrialSpec | None
    """None: it came to nothing before it had a folder."""


class Search(ABC):
    """Where trials come from and results go to.

    Every change is on disk when a method returns, and every method may be the last one of this process: opened again,
    the search goes on with the same trials under the same numbers.
    """

    name: str
    folder: Path
    """All trials' folders are in it."""
    uid: str
    """Of the study, for ever."""
    total: int
    """Trials in all, once all is done."""
    stillborn: list[Ended]
    """Ended when they were to begin: what was drawn makes no config. The driver takes them from here."""

    @abstractmethod
    def open(self) -> None:
        """Create the folder or go on with it; lock out other drivers. Raises UserError, having changed nothing."""

    @abstractmethod
    def ended(self) -> Sequence[Ended]:
        """Trials that have ended, by number."""

    def unrecorded(self) -> Sequence[Ended]:
        """Trials outside this search, ended under an earlier driver whose tracking server was away at the end."""
        return ()

    @abstractmethod
    def unfinished(self) -> Sequence[TrialSpec]:
        """Trials that were begun and have not ended: these go on first."""

    @abstractmethod
    def next(self) -> TrialSpec | None:
        """A new trial, its folder written; None when there are enough."""

    @abstractmethod
    def report(self, number: int, step: int, value: float) -> bool:
        """Note how a trial stands; whether it should be stopped."""

    @abstractmethod
    def tell(self, number: int, state: str, value: float | None, reason: str | None) -> None:
        """Note how a trial ended. Telling twice is once."""

    @abstractmethod
    def close(self) -> None:
        """Let other drivers in."""


def trial_folder(folder: Path, number: int) -> Path:
    """Where a trial lives."""
    return folder / f"trial_{number:04d}"


def read_result(folder: Path) -> Mapping[str, Any] | None:
    """A trial's result; None while there is none."""
    try:
        result = json.loads((folder / RESULT).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return {"status": "failed", "reason": f"{RESULT} is not JSON"}
    return result if isinstance(result, dict) else {"status": "failed", "reason": f"{RESULT} is not a mapping"}


def write_result(folder: Path, status: str, reason: str) -> None:
    """Say how a trial ended whose job could not: pruned, or dead too often."""
    write_aside(folder / RESULT, json.dumps({"status": status, "reason": reason}) + "\n")


def better(direction: str, value: float, than: float | None) -> bool:
    """Whether ``value`` is the better objective. Nothing beats nothing, and NaN beats nothing."""
    if math.isnan(value):
        return False
    return than is None or (value > than if direction == "maximize" else value < than)
