"""One trial as data: what a launcher is handed, and what a job reads from its folder."""

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from orchestrator import files
from orchestrator.config import Config, from_plain, to_plain
from orchestrator.errors import UserError
from orchestrator.files import Damaged
from orchestrator.record.redact import redact_tree

SPEC, CONFIG, METRICS, RESULT = "trial.json", "config.yaml", "metrics.jsonl", "result.json"
EVALUATIONS, ROOMS = "eval.json", "eval_rooms.npz"
CHECKPOINTS = "checkpoints/model_*.pt"
"""Files of a trial's folder."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One training: everything that its job needs to know, and nothing that may change while it runs."""

    study: str
    """The study, or the experiment of a single run."""
    number: int
    """Counts the study's trials from 0."""
    seed: int
    params: Mapping[str, Any]
    """Config path -> value of what the search chose (already in ``config``); empty for a single run."""
    folder: Path
    """Absolute. The job writes here and nowhere else."""
    config: Config
    """Without ``sweep``: a job knows nothing of the search that it belongs to."""
    attempt: int = 0
    """How often the job has died and been started again."""
    started: float | None = None
    """When its job was started for the first time, seconds since 1970."""
    mlflow_run_id: str | None = None
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells this trial from any other that ever was, also from one of the same study and number that was deleted."""


def write(spec: TrialSpec) -> None:
    """Create the trial's folder with ``trial.json`` and ``config.yaml``: whole, or not at all.

    Raises FileExistsError when the folder is there: a trial is created once.
    """
    aside = spec.folder.with_name(f".{spec.folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    write_aside(aside / CONFIG, as_yaml(redact_tree(to_plain(spec.config))))
    write_aside(aside / SPEC, _as_json(spec))
    if spec.folder.exists():
        shutil.rmtree(aside)
        raise FileExistsError(f"{spec.folder} exists")
    # A folder is renamed onto a free name or an empty folder, never onto one with files: no one else's trial is harmed.
    os.rename(aside, spec.folder)


def update(spec: TrialSpec) -> None:
    """Replace ``trial.json``, say for another attempt; ``config.yaml`` never changes."""
    write_aside(spec.folder / SPEC, _as_json(spec))


def read(folder: Path) -> TrialSpec:
    """The trial of a folder, typed through the schema. Loads data only: nothing that the files name is imported or run.

    Raises UserError when the folder holds no trial, or one that this version's schema refuses.
    """
    folder = Path(folder).resolve()
    try:
        data = files.read_mapping(folder / SPEC, json.loads, "JSON")
        plain = files.read_mapping(folder / CONFIG, from_yaml, "YAML")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{folder}: no trial here ({Path(str(error.filename)).name} is missing)") from error
    known = {name: data[name] for name in _FIELDS if name in data}
    for name, value in known.items():
        if not isinstance(value, _FIELDS[name]):
            raise Damaged(folder / SPEC, f"{name}={value!r}")
    for name in ("study", "number", "seed", "params"):
        if name not in known:
            raise Damaged(folder / SPEC, f"{name}: a value is needed")
    try:
        return TrialSpec(folder=folder, config=from_plain(plain), **known)
    except UserError as error:
        raise Damaged(folder / CONFIG, str(error)) from error


_FIELDS: dict[str, type | tuple[type, ...]] = {
    "study": str,
    "number": int,
    "seed": int,
    "params": dict,
    "attempt": int,
    "started": (int, float, type(None)),
    "mlflow_run_id": (str, type(None)),
    "uid": str,
}


def _as_json(spec: TrialSpec) -> str:
    data = {name: getattr(spec, name) for name in _FIELDS} | {"host": os.uname().nodename, "pid": os.getpid()}
    return json.dumps(data, indent=1, default=list) + "\n"


# libyaml is ten times faster than YAML in Python, and a slot waits for it. Not every build of PyYAML brings it.
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def as_yaml(plain: Any) -> str:
    """Plain data as YAML, in the order that it has."""
    return str(yaml.dump(plain, Dumper=_DUMPER, sort_keys=False))


def from_yaml(text: str) -> Any:
    """Plain data; makes no objects, whatever the text asks for. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_LOADER)


def write_aside(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees the old text or the new, never a part."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
