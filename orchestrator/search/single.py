"""A single run: one trial of today's config, in ``<output_dir>/<experiment_name>/trial_NNNN``."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.config import Config, to_plain
from orchestrator.errors import UserError
from orchestrator.files import Careful
from orchestrator.job.spec import RESULT, TrialSpec, read, write
from orchestrator.lock import FolderLock
from orchestrator.record.mlflow import UNRECORDED
from orchestrator.record.redact import redact_tree
from orchestrator.search.base import STUDY, Ended, Search, Trial, read_result, trial_folder, trial_numbers
from orchestrator.search.sweep import config_difference

LOCK = "driver.lock"
"""In the trial's folder: runs of other configs may go on side by side."""


class SingleRun(Search):
    """Goes on with an unfinished run of the same config; else begins a new one."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config = config
        self.folder, self.name, self.total = folder, config.experiment_name, 1
        self.careful = Careful()
        self.stillborn = []
        self._lock: FolderLock | None = None

    def check(self) -> None:
        """Raise UserError where the folder is a sweep's. Changes nothing."""
        if (self.folder / STUDY).exists():
            raise UserError(
                f"experiment_name={self.name}: {self.folder} is the folder of a sweep; take another experiment_name"
            )

    def open(self) -> None:
        """See Search."""
        self.check()
        found = self._same_config()
        if found is not None:
            self._lock = FolderLock(found.folder / LOCK, f"this run ({found.folder})")
            self._spec = found
        else:
            self._spec = self._create()
            self._lock = FolderLock(self._spec.folder / LOCK, f"this run ({self._spec.folder})")
        self.uid = self._spec.uid

    def _same_config(self) -> TrialSpec | None:
        mine = redact_tree(to_plain(self._config))
        for folder in sorted(self.folder.glob("trial_*"), reverse=True):
            if (folder / RESULT).exists():
                continue
            try:
                spec = read(folder)
            except UserError:  # of another version, or broken: not ours to go on with
                continue
            if not config_difference(to_plain(spec.config), mine):
                return spec
        return None

    def _create(self) -> TrialSpec:
        number = max(trial_numbers(self.folder), default=-1) + 1
        while True:
            folder = trial_folder(self.folder, number)
            spec = TrialSpec(
                study=self.name, number=number, seed=self._config.seed, params={}, folder=folder, config=self._config
            )
            try:
                write(spec)
            except OSError:
                if not folder.exists():
                    raise
                number += 1  # another run was quicker
            else:
                return spec

    def ended(self) -> Sequence[Ended]:
        """See Search."""
        return []

    def unrecorded(self) -> Sequence[Ended]:
        """See Search: earlier runs of this experiment."""
        left = []
        for marker in sorted(self.folder.glob(f"trial_*/{UNRECORDED}")):
            result = read_result(marker.parent)
            if result is not None:
                with suppress(UserError):  # of another version
                    spec = read(marker.parent)
                    left.append(Ended(Trial(spec.number, (spec,)), str(result["status"]), None, result.get("reason")))
        return left

    def unfinished(self) -> Sequence[Trial]:
        """See Search."""
        return [Trial(self._spec.number, (self._spec,))]

    def next(self) -> Trial | None:
        """See Search."""
        return None

    def report(self, trial: Trial, step: int, value: float) -> bool:
        """See Search: a single run is never stopped."""
        return False

    def tell(self, ended: Ended) -> None:
        """See Search: ``result.json`` says it all."""

    def close(self) -> None:
        """See Search."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
