"""The recorder: the one writer of MLflow, a thread beside the driver's loop.

The driver says what is going on by calls that only take a note. The thread follows each live trial's `metrics.jsonl` by
itself and brings MLflow to the same state, in batches. Whatever it meets (no server, a slow one, errors, a locked
database) it tries again later; nothing it meets reaches the driver but one line for people.
"""

import contextlib
import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.record.redact import redact
from orchestrator.record.run import Champion, Outcome, ShippedRun, Update
from orchestrator.record.store import Store, one_line

SHIP_EVERY = 5.0
"""Seconds between two batches of a run: at four iterations a second and 45 metrics an iteration, just under the 1,000
metrics that a batch may hold. Fewer cost more per metric, and a batch can't hold more."""

UNRECORDED = "unrecorded"
"""An empty file in a trial's folder, there from the trial's start until MLflow has all of it. A driver that finds one
beside a result tells its recorder of that trial, too."""

_SILENT = 2.0
"""Seconds that the end may take without a word."""

_FIRST_LOOK = 0.5  # seconds between two looks for the first record of a trial
_PATIENCE = (1.0, 30.0)  # seconds until the next try after an error: the first time, and at most
_PATIENCE_AT_CLOSE = 0.5

# Errors that trying again doesn't mend and that concern one run, such as one that somebody deleted.
_FINAL = {
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "BAD_REQUEST",
    "INVALID_STATE",
}


@dataclass(frozen=True)
class Report:
    """What became of the recording."""

    points: int
    """Metric points shipped by this recorder."""
    unfinished: tuple[str, ...]
    """Names of the runs that MLflow doesn't have all of; the next recorder that is told of them ships the rest."""
    reason: str | None
    """Why, in one line without credentials; None when nothing is missing."""
    withdrawn: str | None = None
    """Name of the run that was the study's champion and no longer is."""
    has_champion: bool = False
    """Whether a run of the study is the registered champion."""


class Recorder:
    """Records a study, or a single run, in MLflow.

    Every method but `close` returns at once, may be called from any thread, and raises only for a caller's mistake.
    A study or trial is known by its `uid`, which outlives the process: after a kill, tell a new recorder of the same
    study and of all its trials, ended ones included, and it completes what is missing and repeats nothing.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        *,
        ship_every: float = SHIP_EVERY,
        tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
    ) -> None:
        """Start the thread, which imports MLflow and opens the store at `uri` (absolute, see `store.resolve_uri`).

        `tell` gets the lines for people, from the recorder's thread.
        """
        self._uri = uri
        self._experiment = experiment
        self._ship_every = ship_every
        self._tell_line = tell
        self._study: ShippedRun | None = None
        self._trials: dict[int | str, ShippedRun] = {}
        self._order: list[ShippedRun] = []
        self._folders: dict[str, Path] = {}
        self._set_aside: dict[str, str] = {}
        self._store: Store | None = None
        self._trouble: str | None = None
        self._failures = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = self._given_up = False
        self._steps = 0
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def start_study(
        self,
        uid: str,
        name: str,
        *,
        started: float | None = None,
        tags: Mapping[str, Any] | None = None,
        artifacts: Sequence[Path] = (),
    ) -> None:
        """Open the parent run of a sweep, before its trials; a single run has none. Reopens one that had ended.

        ``started``: seconds since 1970; None is now.
        """
        with self._lock:
            if self._study is None:
                self._study = ShippedRun(uid, name, started=started)
                self._order.append(self._study)
            self._study.update(Update(tags=tags or {}, artifacts=tuple(artifacts)))
        self._wake.set()

    def update_study(
        self,
        *,
        tags: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Mapping[int, float]] | None = None,
        artifacts: Sequence[Path] = (),
    ) -> None:
        """Add tags, metrics (name -> step -> value) and files to the parent run of a sweep that has been started."""
        assert self._study is not None
        self._study.update(Update(tags=tags or {}, metrics=metrics or {}, artifacts=tuple(artifacts)))
        self._wake.set()

    def name_champion(self, key: int | str, model: str, why: str) -> None:
        """Make a trial's policy the version of the registered model ``model`` that has the alias ``champion``."""
        assert self._study is not None
        self._study.update(Update(champion=Champion(self._trials[key], model, why)))
        self._wake.set()

    def withdraw_champion(self, model: str) -> None:
        """Take the alias from the registered model ``model``, where a trial of this study has it."""
        assert self._study is not None
        self._study.update(Update(no_champion=model))
        self._wake.set()

    def start_trial(
        self,
        key: int | str,
        folder: Path,
        uid: str,
        *,
        started: float | None = None,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        searched: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        artifacts: Sequence[Path] = (),
    ) -> None:
        """Open a trial's run and follow `folder/metrics.jsonl`. Reopens a run that had ended.

        `key` is what the other methods know it by. `started`: seconds since 1970; None is now. `config` is the resolved
        config as plain mappings: it becomes the params, flat; `searched` those of it that are searched, by config path.
        Values of tags may be any scalar; None leaves a tag out. `artifacts` are files.
        """
        update = Update(tags or {}, config or {}, searched or {}, tuple(artifacts))
        with self._lock:
            run = self._trials.get(key)
            if run is None or run.uid != uid:
                run = ShippedRun(
                    uid,
                    name or (f"trial_{key:04d}" if isinstance(key, int) else key),
                    self._study,
                    folder / "metrics.jsonl",
                    started,
                )
                self._trials[key] = run
                self._order.append(run)
            run.update(update)
            self._folders[run.uid] = folder
            with contextlib.suppress(OSError):  # a help for the next start, not worth failing for
                (folder / UNRECORDED).touch()
        self._wake.set()

    def end_trial(
        self,
        key: int | str,
        outcome: Outcome,
        *,
        ended: float | None = None,
        tags: Mapping[str, Any] | None = None,
        artifacts: Sequence[Path] = (),
        policy: Path | None = None,
    ) -> None:
        """End a trial's run once all its metrics are shipped. `policy` is a `policy.npz`, kept as a model as well.

        `ended`: seconds since 1970; None is now.

        finished → FINISHED, failed → FAILED, pruned and interrupted → KILLED, the latter with the tag `interrupted`.
        """
        self._trials[key].update(
            Update(tags or {}, artifacts=tuple(artifacts), policy=policy, outcome=outcome, ended=ended or time.time())
        )
        self._wake.set()

    def run_id(self, key: int | str) -> str | None:
        """Return MLflow's id of a trial's run; None until it is known."""
        run = self._trials.get(key)
        return run.run_id if run else None

    def close(
        self, outcome: Outcome, patience: float, *, at_most: float = math.inf, tags: Mapping[str, Any] | None = None
    ) -> Report:
        """End the study with `outcome`, its live trials as interrupted, and ship everything.

        Gives up when nothing was shipped for `patience` seconds, and after `at_most` seconds. Patience is for a server
        that doesn't answer: until a file is opened, which may have to be made first, none is lost. What is missing then
        is named in the report and told to the user. The last call to a recorder.
        """
        with self._lock:
            for run in self._trials.values():
                if not run.ending:
                    run.update(Update(outcome="interrupted", ended=time.time()))
            if self._study is not None and not self._study.ending:
                self._study.update(Update(tags=tags or {}, outcome=outcome, ended=time.time()))
            self._closing = True
        self._wake.set()
        try:
            self._wait(patience, at_most)
        finally:
            self._given_up = True
        unfinished = self._unfinished()
        reason = None
        if unfinished:
            waited = min(patience, at_most)
            reason = next(iter(self._set_aside.values()), None) or self._trouble or f"not done within {waited:g} s"
            names = f"{len(unfinished)} runs are" if len(unfinished) > 1 else f"{unfinished[0]} is"
            self._tell(f"{names} not fully recorded in MLflow ({reason}); {self._later()}")
        withdrawn = self._study.withdrawn if self._study is not None else None
        has_champion = self._study is not None and self._study.has_champion
        return Report(sum(run.points for run in self._runs()), unfinished, reason, withdrawn, has_champion)

    def _wait(self, patience: float, at_most: float) -> None:
        """Until all is shipped or patience ends; says what for, at once where MLflow is known to be in trouble."""
        began = moved = time.monotonic()
        told, progress = False, None
        while self._thread.is_alive():
            now, opening = time.monotonic(), self._opening
            if opening or progress != (progress := (self._steps, sum(run.points for run in self._runs()))):
                moved = now
            left = min(moved + patience, began + at_most) - now
            if left <= 0:
                return
            if not told and (self._trouble or now > began + _SILENT) and self._unfinished():
                told = True
                if opening and at_most == math.inf:
                    limit = "as long as opening it takes"
                else:
                    limit = f"{left:.0f} s at most without an answer"
                self._tell(
                    f"{self._awaited()}, {limit}; Ctrl-C ends this. {self._kept()} what is not recorded, and "
                    f"{self._later()}"
                )
            self._thread.join(min(left, 0.1))

    def _awaited(self) -> str:
        """What takes its time: a store that is in trouble, or nothing but the amount on a busy machine."""
        if self._trouble:
            return f"waiting for MLflow at {self._uri} ({self._trouble})"
        if self._uri.startswith("sqlite:"):
            return f"writing the rest to {self._uri.removeprefix('sqlite:///')}"
        return f"sending the rest to MLflow at {self._uri}"

    @property
    def _opening(self) -> bool:
        """Whether a file is being opened, or made: that takes as long as it takes, on a busy machine."""
        return self._store is None and self._trouble is None and self._uri.startswith("sqlite:")

    def _runs(self) -> list[ShippedRun]:
        with self._lock:
            return list(self._order)

    def _unfinished(self) -> tuple[str, ...]:
        return tuple(run.name for run in self._runs() if not run.settled)

    def _kept(self) -> str:
        """Who has what isn't recorded: a trial's folder, in ``metrics.jsonl`` and its other files."""
        left = [self._folders[run.uid] for run in self._runs() if not run.settled and run.uid in self._folders]
        if len(left) == 1:
            return f"{left[0]} keeps"
        return "Each trial's folder keeps"

    def _later(self) -> str:
        """How it gets into MLflow."""
        if self._study is not None:
            return "the same command again records the rest"
        return "the next run of this experiment records the rest"

    def _work(self) -> None:
        """Loop of the thread: sync what is due, then wait until something is asked for or due."""
        next_ship: dict[str, float] = {}
        while True:
            self._wake.clear()
            with self._lock:
                runs, closing = list(self._order), self._closing
            try:
                self._sync([run for run in runs if self._due(run, next_ship)], next_ship)
            except Exception as error:
                self._failed(error)
            if closing and all(run.settled or run.uid in self._set_aside for run in runs):
                return
            if self._given_up:
                return
            self._rest(next_ship)

    def _due(self, run: ShippedRun, next_ship: Mapping[str, float]) -> bool:
        if run.settled or run.uid in self._set_aside:
            return False
        return run.waiting or (run.follows and time.monotonic() >= next_ship.get(run.uid, 0.0))

    def _sync(self, runs: Sequence[ShippedRun], next_ship: dict[str, float]) -> None:
        if not runs:
            return
        if self._store is None:
            self._store = Store(self._uri, self._experiment)
            # MLflow brings a million objects that stay: keep the collector from walking them time and again.
            gc.collect()
            gc.freeze()
        for run in runs:
            if self._given_up:
                return  # whoever waited has gone: begin nothing that can't be ended
            try:
                with _no_collection():
                    run.sync(self._store)
            except Exception as error:
                if getattr(error, "error_code", None) not in _FINAL:
                    with self._lock:  # next time the others come first, should it be this run's fault after all
                        if run is not self._study:
                            self._order.remove(run)
                            self._order.append(run)
                    raise
                self._set_aside[run.uid] = one_line(error)
                self._tell(f"MLflow refuses {run.name}, which is no longer recorded: {one_line(error)}")
            self._steps += 1
            self._unmark(run)
            next_ship[run.uid] = time.monotonic() + (self._ship_every if run.points else _FIRST_LOOK)
        if self._trouble is not None:
            self._tell("MLflow takes records again, nothing was lost")
        self._trouble, self._failures = None, 0

    def _unmark(self, run: ShippedRun) -> None:
        with self._lock:  # start_trial may be marking it again
            if run.settled and run.uid in self._folders:
                with contextlib.suppress(OSError):
                    (self._folders[run.uid] / UNRECORDED).unlink(missing_ok=True)

    def _failed(self, error: Exception) -> None:
        first = self._trouble is None
        self._trouble = one_line(error)
        self._failures += 1
        if first and not self._closing:
            self._tell(f"MLflow at {self._uri} takes no records ({self._trouble}): training goes on, they follow later")

    def _rest(self, next_ship: Mapping[str, float]) -> None:
        """Wait until the next thing is due, or until the driver asks for something while there is no trouble."""
        if self._failures:
            shortest, longest = _PATIENCE
            until = time.monotonic() + min(longest, shortest * 2.0 ** min(self._failures - 1, 10))
            while (left := until - time.monotonic()) > 0:
                if self._closing:
                    time.sleep(min(_PATIENCE_AT_CLOSE, left))
                    return
                self._wake.wait(left)
                self._wake.clear()
            return
        with self._lock:
            live = [run.uid for run in self._order if run.follows and run.uid not in self._set_aside]
        due = min((next_ship.get(uid, 0.0) for uid in live), default=None)
        self._wake.wait(None if due is None else max(0.0, due - time.monotonic()))

    def _tell(self, line: str) -> None:
        with contextlib.suppress(Exception):  # a terminal that went away mustn't end the recording
            self._tell_line(redact(line))


@contextlib.contextmanager
def _no_collection() -> Any:
    """Hold the cyclic garbage collector back: a batch makes some 100,000 objects and frees them by itself."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
