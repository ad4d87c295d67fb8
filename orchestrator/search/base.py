"""What the driver asks for trials: a sweep's study, or the one trial of a single run."""

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator import files
from orchestrator.errors import shown
from orchestrator.files import Careful, Damaged
from orchestrator.job.spec import EVALUATIONS, METRICS, RESULT, TrialSpec, write_aside
from orchestrator.record import wal
from orchestrator.search.objective import Judge, Score, mean_score

OUTCOMES = ("finished", "pruned", "failed")
"""How a training may have ended."""

STUDY, DATABASE = "study.yaml", "study.db"
"""Files of a study's folder."""

CONFIRM = "confirm"
"""The folder of confirmations, in a study's."""


@dataclass(frozen=True)
class Trial:
    """Something to be found out: how good a config is, by one training or by several with other seeds."""

    number: int
    """Of the study's trial whose config it is."""
    runs: tuple[TrialSpec, ...]
    """The trainings; none where the config couldn't be made."""
    confirms: bool = False
    """Not part of the search: it is trained again, on fresh seeds."""

    @property
    def name(self) -> str:
        """Its folder, within the search's."""
        return str(trial_folder(Path(CONFIRM) if self.confirms else Path(), self.number))


@dataclass(frozen=True)
class Ended:
    """A trial that has ended."""

    trial: Trial
    state: str
    """``finished``, ``pruned`` or ``failed``."""
    score: Score | None
    """The mean of its trainings; of a pruned one, where they stood. None where not all of them were trained."""
    reason: str | None = None
    spread: tuple[float, ...] = ()
    """Standard deviation of each objective between the trainings."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Config path -> value of what was searched, as far as the study knows it."""


@dataclass(frozen=True)
class Champion:
    """A training whose policy is to be known by name."""

    run: TrialSpec
    why: str


@dataclass(frozen=True)
class Findings:
    """What a search has come to, when all is done."""

    lines: Sequence[str] = ()
    """For people."""
    tags: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Name -> trial -> value."""
    files: Sequence[Path] = ()
    confirmed: bool = False
    """Whether the best were trained on fresh seeds: without a ``champion`` an earlier one is none any more."""
    champion: Champion | None = None
    again: tuple[str, str] | None = None
    """Whose config lies ready to be trained again, and by which override: ``("the winner", "+best=config")``."""


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
    careful: Careful
    """Knows what of the trials' files could not be read."""
    stillborn: list[Ended]
    """Ended when they were to begin: what was drawn makes no config. The driver takes them from here."""

    @abstractmethod
    def open(self) -> None:
        """Create the folder or go on with it; lock out other drivers. Raises UserError, having changed nothing."""

    reports_runs: bool = False
    """Whether ``report`` is told how each training came out, at the index of its seed, and not how the trial stands."""

    @abstractmethod
    def ended(self) -> Sequence[Ended]:
        """Trials that have ended, by number, and what was confirmed."""

    def confirmations(self) -> int:
        """Trials that are to be trained on fresh seeds, as far as is known."""
        return 0

    def unrecorded(self) -> Sequence[Ended]:
        """Trials outside this search, ended under an earlier driver whose tracking server was away at the end."""
        return ()

    @abstractmethod
    def unfinished(self) -> Sequence[Trial]:
        """Trials that were begun and have not ended: these go on first."""

    @abstractmethod
    def next(self) -> Trial | None:
        """A new trial, the folders of its trainings written. None: there are enough, or others must end before."""

    @abstractmethod
    def report(self, trial: Trial, step: int, value: float) -> bool:
        """Note how a trial stands in its only objective; whether it should be stopped."""

    @abstractmethod
    def tell(self, ended: Ended) -> None:
        """Note how a trial ended. Telling twice is once. Raises UserError where it can't be compared with others."""

    def conclude(self) -> Findings:
        """When ``next`` has no more and all have ended: what came of it. May be asked again, and says the same."""
        return Findings()

    @abstractmethod
    def close(self) -> None:
        """Let other drivers in."""


def trial_folder(folder: Path, number: int) -> Path:
    """Where a trial lives."""
    return folder / f"trial_{number:04d}"


def trial_numbers(folder: Path) -> set[int]:
    """Of the trials that live in a folder, or whose configs do."""
    named = (re.fullmatch(r"trial_(\d+)(\.yaml)?", path.name) for path in folder.glob("trial_*"))
    return {int(found[1]) for found in named if found is not None}


def run_folders(folder: Path, seeds: Sequence[int]) -> list[Path]:
    """Where a trial's trainings live: one alone in the trial's own folder, several in one each."""
    return [folder] if len(seeds) == 1 else [folder / f"seed_{seed}" for seed in seeds]


def ended_by_runs(trial: Trial, results: Sequence[Mapping[str, Any]], judge: Judge) -> Ended:
    """How a trial came out all of whose trainings have ended. One that failed is never averaged away."""
    outcomes = list(zip(trial.runs, results, strict=True))
    for status in ("failed", "pruned"):
        for run, result in outcomes:
            if result.get("status") == status:
                return Ended(trial, status, None, _of_seed(trial, run, str(result.get("reason") or "no reason given")))
    scores = []
    for run in trial.runs:
        records = wal.read(run.folder / METRICS)
        score = judge.score(records)
        if score is None:
            return Ended(trial, "failed", None, _of_seed(trial, run, judge.why_no_score(records)))
        scores.append(score)
    mean, spread = mean_score(scores)
    return Ended(trial, "finished", mean, None, spread if len(scores) > 1 else ())


def _of_seed(trial: Trial, run: TrialSpec, reason: str) -> str:
    return f"{reason} (seed {run.seed})" if len(trial.runs) > 1 else reason


def read_result(folder: Path) -> Mapping[str, Any] | None:
    """A trial's result; None while there is none."""
    file = folder / RESULT
    try:
        result = files.read_mapping(file, json.loads, "JSON")
        if result.get("status") not in OUTCOMES:
            raise Damaged(file, f"status={shown(result.get('status'))}: expected one of {', '.join(OUTCOMES)}")
        if not isinstance(result.get("reason"), str | None):
            raise Damaged(file, f"reason={shown(result['reason'])}: expected null or a text")
        if not isinstance(result.get("ended"), int | float | None):
            raise Damaged(file, f"ended={shown(result['ended'])}: expected null or a number")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Damaged as error:
        return {"status": "failed", "reason": f"{RESULT} could not be read: {error.why}"}
    return result


def nothing_finished(outcomes: Iterable[tuple[str, str | None]]) -> str | None:
    """What to say where no trial finished, of states and reasons; None where one did, or none has failed."""
    outcomes = list(outcomes)
    why = next((reason or "no reason given" for state, reason in outcomes if state == "failed"), None)
    return None if why is None or any(state == "finished" for state, _ in outcomes) else f"no trial finished: {why}"


def evaluation_set(run: TrialSpec) -> str | None:
    """The hash of the frozen rooms that a training was judged on; None where it wasn't yet."""
    return set_hash(run.folder, run.config.evaluation.set)


def set_hash(folder: Path, name: str) -> str | None:
    """The same of a training's folder, for the frozen set of this name."""
    try:
        evaluations = files.read_mapping(folder / EVALUATIONS, json.loads, "JSON")
        hashed = evaluations["sets"][name]["set_hash"]
    except (OSError, Damaged, KeyError, TypeError):
        return None
    return str(hashed)


def write_result(folder: Path, status: str, reason: str) -> Mapping[str, Any]:
    """Say how a trial ended whose job could not: pruned, or dead too often."""
    result = {"status": status, "reason": reason, "ended": round(time.time(), 3)}
    write_aside(folder / RESULT, json.dumps(result) + "\n")
    return result


def keep(file: Path, text: str) -> None:
    """Write a file, and the folder that it is in, unless it says this already."""
    if file.is_dir():
        raise Damaged(file, "expected a file, found a folder")
    if not file.exists() or file.read_bytes() != text.encode():
        file.parent.mkdir(exist_ok=True)
        write_aside(file, text)
