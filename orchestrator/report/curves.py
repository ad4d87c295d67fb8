"""The curves of one training with what is known of its settings, from wherever they were kept."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from orchestrator import files
from orchestrator.errors import UserError
from orchestrator.files import Damaged
from orchestrator.job.spec import CONFIG, METRICS, RESULT, from_yaml
from orchestrator.record import wal
from orchestrator.record.fields import flatten
from orchestrator.search.base import read_result
from orchestrator.sources import check_one_training, training_folder

_LARGEST = float(np.finfo(np.float32).max)
"""Trainings count in 32 bits: what is larger is no number of theirs, and its square would not be finite."""

EVENT_FILES = "events.out.tfevents.*"


class Missing(Exception):
    """Something that a verdict would need is not there. ``str(missing)`` says what."""


@dataclass(frozen=True)
class Curve:
    """One metric; its values are finite."""

    steps: np.ndarray
    """(points,) iterations, increasing."""
    values: np.ndarray
    """(points,)"""

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, first: float, last: float = math.inf) -> "Curve":
        """The points of the iterations ``first`` to ``last``."""
        inside = (self.steps >= first) & (self.steps <= last)
        return Curve(self.steps[inside], self.values[inside])

    def where(self, seen: np.ndarray) -> tuple[int, int]:
        """First and last iteration of those that ``seen`` (points,) bool marks; there is one."""
        steps = self.steps[seen]
        return int(steps[0]), int(steps[-1])


@dataclass(frozen=True)
class RunCurves:
    """Everything that a verdict on a training can rest on."""

    curves: Mapping[str, Curve]
    """By metric name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Config path -> value; empty where the config is not at hand."""
    broken: tuple[int, tuple[str, ...]] | None = None
    """First iteration with a metric that is not finite, and the names of these metrics."""
    failure: str | None = None
    """Why the run failed, where it did."""

    @property
    def first(self) -> int:
        """First iteration."""
        return min((int(curve.steps[0]) for curve in self.curves.values()), default=0)

    @property
    def last(self) -> int:
        """Last iteration."""
        return max((int(curve.steps[-1]) for curve in self.curves.values()), default=0)

    def part(self, share: float) -> float:
        """The iteration that ``share`` of the training has gone by; 0 is the first and 1 the last."""
        return self.first + share * (self.last - self.first)

    def curve(self, name: str, least: int = 1, since: float = -math.inf, until: float = math.inf) -> Curve:
        """A metric's curve between two iterations. Raises Missing when it has fewer than ``least`` points there."""
        curve = self.curves.get(name)
        if curve is None:
            raise Missing(f"{name} was not logged")
        within = curve.between(since, until)
        if len(within) < least:
            where = (
                ""
                if len(within) == len(curve)
                else f" in iterations {max(since, self.first):.0f} to {min(until, self.last):.0f}"
            )
            raise Missing(f"{name} has {len(within)} points{where}, too few")
        return within

    def setting(self, path: str) -> Any:
        """A value of the config. Raises Missing when it is not known."""
        if path not in self.settings:
            raise Missing(f"{path} is not known")
        return self.settings[path]

    def positive(self, path: str) -> float:
        """A number of the config that is above 0. Raises Missing when it is not known, or is none."""
        value = self.setting(path)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST:
            raise Missing(f"{path} is {value}")
        return float(value)


def gather(
    points: Iterable[tuple[str, int, float]], settings: Mapping[str, Any] | None = None, failure: str | None = None
) -> RunCurves:
    """Put (name, step, value) in order; of several values of a step the last one counts."""
    columns: dict[str, dict[int, float]] = {}
    for name, step, value in points:
        columns.setdefault(name, {})[step] = value
    first_broken: dict[str, int] = {}
    curves = {}
    for name, column in columns.items():
        steps = np.array(sorted(column))
        values = np.array([column[step] for step in steps], dtype=float)
        finite = np.abs(values) <= _LARGEST
        if not finite.all():
            first_broken[name] = int(steps[~finite][0])
        if finite.any():
            curves[name] = Curve(steps[finite], values[finite])
    broken = None
    if first_broken:
        step = min(first_broken.values())
        broken = step, tuple(sorted(name for name, at in first_broken.items() if at == step))
    return RunCurves(curves, settings or {}, broken, failure)


def from_folder(folder: Path) -> RunCurves:
    """Of a trial's folder: its log, its config, and how it ended. No log, no curves."""
    return gather(_log_points(folder / METRICS), _settings(folder), _failure(folder))


def from_log(path: Path) -> RunCurves:
    """Of a ``metrics.jsonl``; config and result are taken from beside it. Raises UserError when it holds nothing."""
    points = list(_log_points(path))
    if not points:
        raise UserError(f"run={path}: expected a metrics.jsonl with at least one whole line")
    return gather(points, _settings(path.parent), _failure(path.parent))


def from_events(path: Path) -> RunCurves:
    """Of a TensorBoard event file, or of all that lie in a folder. Raises UserError when there is no scalar in them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = path if path.is_dir() else path.parent
    reader = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    try:
        reader.Reload()
    except Exception as error:  # whatever the reader meets in a file that is none
        raise UserError(f"run={path}: not a TensorBoard event file: {error}") from error
    points = [(tag, event.step, event.value) for tag in reader.Tags()["scalars"] for event in reader.Scalars(tag)]
    if not points:
        raise UserError(f"run={path}: expected TensorBoard event files with scalars")
    return gather(points, _settings(folder), _failure(folder))


def from_mlflow(run_id: str, uri: str) -> RunCurves:
    """Of a run in MLflow. Raises UserError when there is no such run, or no such store."""
    from orchestrator.record.reading import open_run

    run = open_run(run_id, uri)
    points = [(name, step, value) for name, curve in run.curves().items() for step, value in curve.items()]
    if not points:
        raise UserError(f"run={run_id}: the run has no metrics (of a sweep, its trials have)")
    settings = {name: _scalar(value) for name, value in run.params.items()}
    return gather(points, settings, run.tags.get("failure_reason"))


def find(source: str, uri: str) -> RunCurves:
    """The curves of a trial's folder, a ``metrics.jsonl``, event files (one, or a folder of them) or an MLflow run id.

    Raises UserError when ``source`` is none of these.
    """
    path = Path(source)
    if path.is_dir():
        if (path / METRICS).exists():
            return from_log(path / METRICS)
        if any(path.glob(EVENT_FILES)):
            return from_events(path)
        check_one_training(source)
        raise UserError(f"run={source}: expected a folder with {METRICS} or {EVENT_FILES}")
    if "tfevents" in path.name and path.exists():
        return from_events(path)
    if path.suffix == Path(METRICS).suffix and path.exists():
        return from_log(path)
    training_folder(source)
    if re.fullmatch(r"[0-9a-f]{32}", source):
        return from_mlflow(source, uri)
    raise UserError(f"run={source}: expected a trial's folder, a {METRICS}, event files, or the id of an MLflow run")


def _log_points(path: Path) -> Iterable[tuple[str, int, float]]:
    return ((name, record.step, value) for record in wal.read(path) for name, value in record.metrics.items())


def _settings(folder: Path) -> dict[str, Any]:
    try:
        return dict(flatten(files.read_mapping(folder / CONFIG, from_yaml, "YAML")))
    except (OSError, Damaged):  # a help, not worth failing for
        return {}


def _failure(folder: Path) -> str | None:
    result = read_result(folder) if (folder / RESULT).exists() else None
    return str(result.get("reason")) if result is not None and result.get("status") == "failed" else None


def _scalar(text: str) -> Any:
    """A param as the value that it was written from."""
    try:
        return float(text) if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", text) else from_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError):
        return text
