"""A sweep: a study, the folders of its trials, and the config that all of them are made from."""

import shutil
import sqlite3
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator import files
from orchestrator.config import Config, to_plain
from orchestrator.errors import UserError
from orchestrator.files import Careful, Damaged
from orchestrator.job.spec import TrialSpec, as_yaml, from_yaml, read, write, write_aside
from orchestrator.lock import FolderLock
from orchestrator.record.fields import flatten
from orchestrator.record.redact import redact_tree
from orchestrator.search import best, confirm, front
from orchestrator.search.base import (
    CONFIRM,
    DATABASE,
    STUDY,
    Champion,
    Ended,
    Findings,
    Search,
    Trial,
    ended_by_runs,
    nothing_finished,
    read_result,
    run_folders,
    set_hash,
    trial_folder,
    trial_numbers,
)
from orchestrator.search.objective import Judge
from orchestrator.search.space import Space, apply
from orchestrator.search.study import Study, StudyTrial, best_points

LOCK = "lock"

MAY_DIFFER = ("launcher.", "tracking.", "confirm.", "doctor", "dry_run", "output_dir")
"""What a study may be gone on with otherwise than it was begun; ``sweep.n_trials`` may grow as well."""

LEARNT_FROM = "launcher.nproc_per_node"
"""But not this: rooms and random numbers are each process's own, and so are checkpoints."""


class Sweep(Search):
    """The search of ``config.sweep`` in ``<output_dir>/<sweep.name>``."""

    def __init__(self, config: Config, space: Space, folder: Path) -> None:
        assert config.sweep is not None
        self._config, self._space, self._sweep = config, space, config.sweep
        self.folder, self.name, self.total = folder, config.sweep.name, config.sweep.n_trials
        self.careful = Careful()
        self.stillborn = []
        self._judge = Judge(config)
        self._top_k = config.confirm.top_k
        self._seeds = [config.seed + i for i in range(config.sweep.seeds_per_trial)]
        self._fresh = confirm.fresh_seeds(config.seed, self._seeds, config.confirm.seeds)
        self._handed_out: set[int] = set()
        """Numbers whose confirmation is under way, or over."""
        self._specs: dict[Path, TrialSpec] = {}
        self._judged_in: tuple[str, Path] | None = None
        """The hash of the frozen rooms, and a training that was evaluated in them."""
        self._lock: FolderLock | None = None

    def check(self) -> None:
        """Raise UserError where the folder holds something that this sweep can't go on with. Changes nothing."""
        if not (self.folder / STUDY).exists():
            if (self.folder / DATABASE).exists() or list(self.folder.glob("trial_*")):
                raise UserError(f"sweep.name={self.name}: {self.folder} holds something else; take another name")
            self.points()
            return
        begun = read_begun(self.folder)
        check_database(self.folder, self.name)
        differences = config_difference(begun["config"], _identity(self._config))
        if differences:
            raise UserError(
                f"study '{self.name}' was begun with another config: {'; '.join(differences)}. Take another sweep.name "
                "or the old values to go on with it"
            )
        self._check_rooms(
            training
            for under, seeds in ((self.folder, self._seeds), (self.folder / CONFIRM, self._fresh))
            for number in sorted(trial_numbers(under))
            for training in run_folders(trial_folder(under, number), seeds)
        )

    def _check_rooms(self, trainings: Iterable[Path]) -> None:
        """Raise UserError where one was evaluated in other rooms than those before it, so that no comparison of them
        means anything: what draws the rooms has changed."""
        name = self._config.evaluation.set
        for folder in trainings:
            hashed = set_hash(folder, name)
            if hashed is None:
                continue
            if self._judged_in is None:
                self._judged_in = hashed, folder
            elif hashed != self._judged_in[0]:
                before, first = self._judged_in
                raise UserError(
                    f"study '{self.name}': {folder.relative_to(self.folder)} was evaluated on another set '{name}' "
                    f"({hashed}) than {first.relative_to(self.folder)} ({before}): the code that draws its rooms has "
                    "changed; take another sweep.name, or the old code"
                )

    def open(self) -> None:
        """See Search."""
        self.check()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self.folder / LOCK, f"study '{self.name}'")
        self.check()  # another driver may have begun it in between
        if not (self.folder / STUDY).exists():
            new = {"uid": uuid.uuid4().hex, "points": self.points(), "config": _identity(self._config)}
            write_aside(self.folder / STUDY, as_yaml(new))
        for half_written in (".trial_*", "trial_*/.seed_*", f"{CONFIRM}/trial_*/.seed_*"):
            for folder in self.folder.glob(half_written):
                shutil.rmtree(folder, ignore_errors=True)
        begun = read_begun(self.folder)
        self.uid = begun["uid"]
        self._study = Study(
            self.folder / DATABASE, self._sweep, self._space, self._judge, self._config.seed, begun["points"]
        )
        self.reports_runs = self._study.reports_runs

    def look(self) -> Sequence[Ended]:
        """Instead of ``open``: the trials that have ended, of a study that goes on elsewhere, or not at all. Changes
        nothing; raises UserError."""
        points = read_begun(self.folder)["points"]
        check_database(self.folder, self.name)
        if not (self.folder / DATABASE).exists():
            return []  # begun a moment ago
        self._study = Study(self.folder / DATABASE, self._sweep, self._space, self._judge, self._config.seed, points)
        return self.ended()

    def points(self) -> list[dict[str, Any]]:
        """What the first trials must be: today's config, the enqueued ones, and the best of an earlier study. Raises
        UserError where none of these fits."""
        today, name = self._space.today(self._config), self._sweep.warm_start
        points = [today, *(dict(flatten(point)) for point in self._sweep.enqueue)]
        if name is not None:
            earlier = self.folder.parent / name
            check_database(earlier, name)
            points += best_points(earlier / DATABASE, name, self._space, today, self._sweep.warm_start_top)
        return points

    def ended(self) -> Sequence[Ended]:
        """See Search."""
        trials = [
            Ended(Trial(t.number, self._runs_on_disk(t.number)), t.state, t.score, t.reason, t.spread, t.values)
            for t in self._study.trials()
            if t.state != "running"
        ]
        confirmed = []
        for number in self._to_confirm():
            with self.careful.noting():
                confirmed += [ended for ended in [self._confirmed(number)] if ended is not None]
        self._handed_out.update(e.trial.number for e in confirmed)
        return [*trials, *confirmed]

    def unfinished(self) -> Sequence[Trial]:
        """See Search."""
        trials = []
        for told in self._study.trials():
            if told.state == "running":
                trial = self._begin(told.number)
                if trial is not None:
                    trials.append(trial)
        for number in self._to_confirm():
            if trial_folder(self.folder / CONFIRM, number).exists() and self._confirmed(number) is None:
                trials.append(self._confirm(number))
        return trials

    def next(self) -> Trial | None:
        """See Search."""
        while len(self._study.trials()) < self.total:
            trial = self._begin(self._study.ask())
            if trial is not None:
                return trial
        for number in self._to_confirm():
            if number not in self._handed_out:
                return self._confirm(number)
        return None

    def confirmations(self) -> int:
        """See Search."""
        if self._judge.one is None or self.total == 1 or self._top_k == 0:
            return 0
        return len(self._to_confirm()) if self._is_searched() else 1 + self._top_k

    def _begin(self, number: int) -> Trial | None:
        """The trial with its trainings' folders; None where what is drawn makes no config, which fails the trial."""
        values: Mapping[str, Any] = {}
        try:
            values = self._study.complete(number)
            config = apply(self._config, values)
        except UserError as error:
            ended = Ended(Trial(number, ()), "failed", None, f"cannot be run: {error}", params=values)
            self.tell(ended)
            self.stillborn.append(ended)
            return None
        return Trial(number, self._runs(self.folder, number, config, values, self._seeds))

    def _runs(
        self, under: Path, number: int, config: Config, values: Mapping[str, Any], seeds: Sequence[int]
    ) -> tuple[TrialSpec, ...]:
        """A training for each seed, its folder written where it isn't there."""
        runs = []
        for seed, folder in zip(seeds, run_folders(trial_folder(under, number), seeds), strict=True):
            if folder.exists():
                runs.append(self._spec(folder))
                continue
            own = replace(config, seed=seed)
            spec = TrialSpec(study=self.name, number=number, seed=seed, params=dict(values), folder=folder, config=own)
            write(spec)
            self._specs[folder] = spec
            runs.append(spec)
        return tuple(runs)

    def _spec(self, folder: Path) -> TrialSpec:
        """The training of a folder; reading one takes a tenth of a second."""
        if folder not in self._specs:
            self._specs[folder] = read(folder)
        return self._specs[folder]

    def _runs_on_disk(self, number: int) -> tuple[TrialSpec, ...]:
        """Those of an ended trial whose folders can still be read."""
        folders = run_folders(trial_folder(self.folder, number), self._seeds)
        specs = (self.careful.read(self._spec, folder) for folder in folders if folder.exists())
        return tuple(spec for spec in specs if spec is not None)

    def report(self, trial: Trial, step: int, value: float) -> bool:
        """See Search."""
        return not trial.confirms and self._study.report(trial.number, step, value)

    def tell(self, ended: Ended) -> None:
        """See Search. What was trained to confirm is told by the ``result.json`` of its trainings.

        Raises UserError where it was evaluated in other rooms than the others."""
        self._check_rooms(run.folder for run in ended.trial.runs)
        if not ended.trial.confirms:
            self._study.tell(ended.trial.number, ended.state, ended.score, ended.reason, ended.spread)
            self._keep_best()

    def _keep_best(self) -> None:
        """``best/config.yaml``: the best so far where nothing is going to be confirmed, else the baseline for now."""
        if self._judge.one is None:
            return
        if self._top_k == 0:
            number = confirm.best_of_search(self._study.trials(), self._judge)
            if number is not None:
                self._write_best(number, "the best of this search, not confirmed on fresh seeds.")
        elif not (self.folder / best.BEST).exists():
            self._write_best(0, "today's config, the baseline; whether any is better has not been confirmed yet.")

    def _write_best(self, number: int, told: str) -> None:
        runs = self._runs_on_disk(number)
        if runs:
            best.write(self.folder / best.BEST, runs[0], told)

    # -- confirmation ------------------------------------------------------------------------------------------------

    def _is_searched(self) -> bool:
        """Whether all trials have ended."""
        trials = self._study.trials()
        return len(trials) >= self.total and all(t.state != "running" for t in trials)

    def _to_confirm(self) -> list[int]:
        """The baseline and the best, once the search has ended; what was begun to be confirmed before is finished."""
        if self._judge.one is None or self._top_k == 0 or not self._is_searched():
            return []
        trials = self._study.trials()
        begun = trial_numbers(self.folder / CONFIRM)
        chosen = confirm.best_trials(trials, self._judge, self._top_k)
        candidates = chosen + sorted(begun - {0, *chosen})
        return [0, *candidates] if candidates else []

    def _confirm(self, number: int) -> Trial:
        self._handed_out.add(number)
        values = self._study.trials()[number].values
        config = apply(self._config, values)
        return Trial(number, self._runs(self.folder / CONFIRM, number, config, values, self._fresh), confirms=True)

    def _confirmed(self, number: int) -> Ended | None:
        """How the trainings on fresh seeds came out; None where some have not ended. Raises UserError."""
        folders = run_folders(trial_folder(self.folder / CONFIRM, number), self._fresh)
        results = [read_result(folder) for folder in folders]
        if any(result is None for result in results):
            return None
        trial = Trial(number, tuple(map(self._spec, folders)), confirms=True)
        return ended_by_runs(trial, [result for result in results if result is not None], self._judge)

    def conclude(self) -> Findings:
        """See Search."""
        trials = self._study.trials()
        scored = [t for t in trials if t.state == "finished" and t.score]
        metrics: dict[str, dict[int, float]] = {}
        for i, objective in enumerate(self._judge.objectives):
            metrics[f"Search/{objective.metric}"] = {t.number: t.score.values[i] for t in scored if t.score}
            if self._sweep.seeds_per_trial > 1:
                metrics[f"Search/{objective.metric}_spread"] = {t.number: t.spread[i] for t in scored if t.spread}
        nothing = nothing_finished((t.state, t.reason) for t in trials)
        if nothing is not None:
            self._keep_best()
            return Findings([nothing], metrics=metrics)
        if self._judge.one is None:
            return self._conclude_front(trials, metrics)
        if self._top_k == 0 or not scored:
            self._keep_best()
            unconfirmed = "one search, one set of seeds: a difference within the noise of the seed is none"
            again = ("the best", best.ADD_BEST) if confirm.best_of_search(trials, self._judge) is not None else None
            return Findings([unconfirmed], metrics=metrics, again=again)
        return self._conclude_confirmation(trials, metrics)

    def _conclude_front(self, trials: Sequence[StudyTrial], metrics: dict[str, dict[int, float]]) -> Findings:
        on_front = self._study.front()
        described = front.describe(on_front, trials, self._judge)
        front.write(self.folder / front.FILE, described)
        configs = self.folder / "front"
        for number in trial_numbers(configs) - set(on_front):
            trial_folder(configs, number).with_suffix(".yaml").unlink()
        ready = {}
        for number in on_front:
            for spec in self._runs_on_disk(number)[:1]:  # unless its folder is gone
                ready[number] = trial_folder(configs, number).with_suffix(".yaml")
                best.write(ready[number], spec, "on the Pareto front.")
        metrics[front.HYPERVOLUME] = described.hypervolume.by_trial
        tags = {"front": ", ".join(map(str, on_front))}
        again = front.again(described, ready)
        return Findings(front.lines(described), tags, metrics, [self.folder / front.FILE], again=again)

    def _conclude_confirmation(self, trials: Sequence[StudyTrial], metrics: dict[str, dict[int, float]]) -> Findings:
        ended = {e.trial.number: e for e in map(self._confirmed, self._to_confirm()) if e is not None}
        candidates = [e for number, e in ended.items() if number > 0]
        if not candidates:
            self._write_best(0, "the baseline; no other trial finished within the constraints.")
            nothing = "nothing to confirm: no trial but the baseline finished within the constraints"
            return Findings([nothing], metrics=metrics, confirmed=True, again=("the baseline", best.ADD_BEST))
        confirmed = confirm.judge_all(self._judge, self._fresh, ended[0], candidates, trials, self.careful)
        confirm.write(self.folder / confirm.FILE, confirmed)
        self._write_best(confirmed.winner or 0, f"{confirmed.words}.")
        champion = None
        if confirmed.winner is not None:
            champion = Champion(confirm.champion(self._judge, ended[confirmed.winner]), confirmed.words)
        tags = {"confirmed": confirmed.winner if confirmed.winner is not None else "none", "verdict": confirmed.words}
        metrics |= confirm.metrics(confirmed)
        again = ("the winner" if champion else "the baseline", best.ADD_BEST)
        return Findings(
            confirm.lines(confirmed),
            tags,
            metrics,
            [self.folder / confirm.FILE],
            confirmed=True,
            champion=champion,
            again=again,
        )

    def close(self) -> None:
        """See Search."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def read_begun(folder: Path) -> dict[str, Any]:
    """What a study's ``study.yaml`` says. Raises UserError when there is none, or it is damaged."""
    file = folder / STUDY
    types = {"uid": str, "points": list, "config": dict}
    begun = files.read_mapping(file, from_yaml, "YAML")
    if not all(isinstance(begun.get(k), t) for k, t in types.items()):
        raise Damaged(file, f"expected the keys {', '.join(types)}")
    if not isinstance(begun["config"].get("sweep"), dict):
        raise Damaged(file, "config.sweep: expected a mapping")
    if not all(isinstance(point, dict) for point in begun["points"]):
        raise Damaged(file, "points: expected a list of mappings")
    return begun


def check_database(folder: Path, name: str) -> None:
    """Raise UserError where a study's database is none of Optuna's, or has lost the study: Optuna itself would write
    its tables into whatever it is handed."""
    file, begun = folder / DATABASE, any(folder.glob("trial_*"))
    if not file.exists():
        if begun:
            raise UserError(f"{file} is gone, but its trials are not; take another sweep.name")
        return
    expected = f"expected Optuna's database with the study '{name}'"
    try:  # not read-only: a transaction that a killed driver left is rolled back
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as database:
            tables = {table for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            rows = database.execute("SELECT study_name FROM studies").fetchall() if "studies" in tables else []
    except sqlite3.OperationalError as error:
        if "locked" in str(error):  # by a driver that is writing
            return
        raise Damaged(file, f"{expected}: {error}") from error
    except sqlite3.Error as error:
        raise Damaged(file, f"{expected}: {error}") from error
    if (name,) not in rows and (begun or (tables and "studies" not in tables)):
        raise Damaged(file, expected)


def _identity(config: Config) -> dict[str, Any]:
    """The config as the study keeps it, without credentials."""
    plain: dict[str, Any] = redact_tree(to_plain(config))
    return plain


def config_difference(begun: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is otherwise now than when the study was begun, and may not be: ``path: before -> now``."""
    old, new = dict(flatten(begun)), dict(flatten(now))
    found = []
    for path in sorted(old | new, key=str):
        before, after = old.get(path, "nothing"), new.get(path, "nothing")
        unset = (before, after) == ("nothing", None)  # a setting that came with a later version
        if before == after or unset or (path.startswith(MAY_DIFFER) and path != LEARNT_FROM):
            continue
        if path == "sweep.n_trials":
            if not isinstance(before, int) or after < before:
                found.append(f"sweep.n_trials: {before} -> {after} (it may only grow)")
            continue
        found.append(f"{path}: {before} -> {after}")
    return found
