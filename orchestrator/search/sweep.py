"""A sweep: a study, the folders of its trials, and the config that all of them are made from."""

import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from orchestrator.config import Config, flatten, to_plain
from orchestrator.errors import UserError
from orchestrator.job.spec import TrialSpec, as_yaml, from_yaml, read, write, write_aside
from orchestrator.lock import FolderLock
from orchestrator.record.redact import redact_tree
from orchestrator.search.base import Ended, Search, trial_folder
from orchestrator.search.space import Space, apply
from orchestrator.search.study import Study, best_points

STUDY, DATABASE, LOCK = "study.yaml", "study.db", "lock"

MAY_DIFFER = ("launcher.", "tracking.", "dry_run", "output_dir")
"""What a study may be gone on with otherwise than it was begun; ``sweep.n_trials`` may grow as well."""


class Sweep(Search):
    """The search of ``config.sweep`` in ``<output_dir>/<sweep.name>``."""

    def __init__(self, config: Config, space: Space, folder: Path) -> None:
        assert config.sweep is not None
        self._config, self._space, self._sweep = config, space, config.sweep
        self.folder, self.name, self.total = folder, config.sweep.name, config.sweep.n_trials
        self.stillborn = []
        self._lock: FolderLock | None = None

    def check(self) -> None:
        """Raise UserError where the folder holds something that this sweep can't go on with. Changes nothing."""
        if not (self.folder / STUDY).exists():
            if (self.folder / DATABASE).exists() or list(self.folder.glob("trial_*")):
                raise UserError(f"sweep.name={self.name}: {self.folder} holds something else; take another name")
            return
        differences = config_difference(self._begun()["config"], _identity(self._config))
        if differences:
            raise UserError(
                f"study '{self.name}' was begun with another config: {'; '.join(differences)}. Take another sweep.name "
                "or the old values to go on with it"
            )

    def _begun(self) -> dict[str, Any]:
        """What ``study.yaml`` says. Raises UserError when it is damaged, or the study's database is gone."""
        file = self.folder / STUDY
        try:
            begun = from_yaml(file.read_text())
        except (ValueError, yaml.YAMLError) as error:
            raise UserError(f"{file}: damaged: {str(error).splitlines()[0]}") from error
        types = {"uid": str, "points": list, "config": dict}
        if not isinstance(begun, dict) or not all(isinstance(begun.get(k), t) for k, t in types.items()):
            raise UserError(f"{file}: damaged: expected the keys {', '.join(types)}")
        if not (self.folder / DATABASE).exists() and list(self.folder.glob("trial_*")):
            raise UserError(f"{self.folder / DATABASE} is gone, but its trials are not; take another sweep.name")
        return begun

    def open(self) -> None:
        """See Search."""
        self.check()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self.folder / LOCK, f"study '{self.name}'")
        self.check()  # another driver may have begun it in between
        if not (self.folder / STUDY).exists():
            points = [
                self._space.today(self._config),
                *(dict(flatten(p)) for p in self._sweep.enqueue),
                *self._earlier(),
            ]
            new = {"uid": uuid.uuid4().hex, "points": points, "config": _identity(self._config)}
            write_aside(self.folder / STUDY, as_yaml(new))
        for half_written in self.folder.glob(".trial_*"):
            shutil.rmtree(half_written, ignore_errors=True)
        begun = self._begun()
        self.uid = begun["uid"]
        self._study = Study(self.folder / DATABASE, self._sweep, self._space, self._config.seed, begun["points"])

    def _earlier(self) -> list[dict[str, Any]]:
        if self._sweep.warm_start is None:
            return []
        name = self._sweep.warm_start
        return best_points(self.folder.parent / name / DATABASE, name, self._space, self._sweep.warm_start_top)

    def ended(self) -> Sequence[Ended]:
        """See Search."""
        trials = [t for t in self._study.trials() if t.state != "running"]
        return [Ended(t.number, t.state, t.value, t.reason, self._spec_on_disk(t.number)) for t in trials]

    def unfinished(self) -> Sequence[TrialSpec]:
        """See Search."""
        specs = []
        for trial in self._study.trials():
            if trial.state == "running":
                values = self._study.complete(trial.number)
                spec = self._spec_on_disk(trial.number) or self._begin(trial.number, values)
                if spec is not None:
                    specs.append(spec)
        return specs

    def next(self) -> TrialSpec | None:
        """See Search."""
        while len(self._study.trials()) < self.total:
            spec = self._begin(*self._study.ask())
            if spec is not None:
                return spec
        return None

    def _begin(self, number: int, values: Mapping[str, Any]) -> TrialSpec | None:
        """The trial's folder; None where these values together make no config, which fails the trial."""
        try:
            config = apply(self._config, values)
        except UserError as error:
            reason = f"cannot be run: {error}"
            self._study.tell(number, "failed", reason=reason)
            self.stillborn.append(Ended(number, "failed", None, reason, None))
            return None
        spec = TrialSpec(
            study=self.name,
            number=number,
            seed=config.seed,
            params=dict(values),
            folder=trial_folder(self.folder, number),
            config=config,
        )
        write(spec)
        return spec

    def _spec_on_disk(self, number: int) -> TrialSpec | None:
        folder = trial_folder(self.folder, number)
        return read(folder) if folder.exists() else None

    def report(self, number: int, step: int, value: float) -> bool:
        """See Search."""
        return self._study.report(number, step, value)

    def tell(self, number: int, state: str, value: float | None, reason: str | None) -> None:
        """See Search."""
        self._study.tell(number, state, value, reason)

    def close(self) -> None:
        """See Search."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _identity(config: Config) -> dict[str, Any]:
    """The config as the study keeps it, without credentials."""
    plain: dict[str, Any] = redact_tree(to_plain(config))
    return plain


def config_difference(begun: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is otherwise now than when the study was begun, and may not be: ``path: before -> now``."""
    old, new = dict(flatten(begun)), dict(flatten(now))
    found = []
    for path in sorted(old | new):
        before, after = old.get(path, "nothing"), new.get(path, "nothing")
        if before == after or path.startswith(MAY_DIFFER):
            continue
        if path == "sweep.n_trials":
            if after < before:
                found.append(f"sweep.n_trials: {before} -> {after} (it may only grow)")
            continue
        found.append(f"{path}: {before} -> {after}")
    return found
