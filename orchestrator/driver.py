"""The one loop: ask -> launch -> tail -> prune -> tell.

The driver owns the order of things, and every step may be its last: what it would need to go on is always on disk
before the next step. A trial is asked for (study), then has a folder (``trial.json``), then a job, then a
``result.json``, then is told (study), then its MLflow run is ended; a driver that starts finds each trial at one of
these points and goes on from there.

It wakes when a job ends or a signal comes, and twice a second to look at the metrics that have come in.
"""

import multiprocessing.connection
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

from navtask.physics import resolve_backend
from orchestrator.config import Config, to_plain
from orchestrator.job.spec import CONFIG, METRICS, RESULT, TrialSpec, update
from orchestrator.launch.base import Exit, Handle, Launcher
from orchestrator.record import wal
from orchestrator.record.mlflow import Recorder
from orchestrator.record.run import Outcome
from orchestrator.search import best
from orchestrator.search.base import Ended, Search, better, read_result, write_result
from orchestrator.search.objective import summarise
from orchestrator.status import Screen, Status, View

TICK = 0.5
"""Seconds between two looks at what jobs have written."""

STOP_GRACE, KILL_GRACE = 6.0, 1.0
"""Seconds after Ctrl-C: jobs may checkpoint so long, and this is for the kernel to clear them away after that."""

INTERRUPT_BUDGET = 9.5
"""Seconds from Ctrl-C to the end (10 are promised): what jobs leave of it is the recorder's, to end its runs."""

RECORDER_PATIENCE = 30.0
"""Seconds for the recorder to ship what is left when all is done: its server may be gone, and come back."""

PRUNE_GRACE = 5.0

SUCCESS = "Eval/success_rate"
"""What the table shows of every trial."""

ARTIFACTS = (RESULT, "eval.json", "policy.onnx", "ppo_trace.png", "job.log")


class NoRecorder:
    """Where nothing is to be recorded in MLflow."""

    def start_study(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def start_trial(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def end_trial(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def run_id(self, number: int) -> str | None:
        """None."""

    def close(self, *_: Any, **__: Any) -> None:
        """Nothing."""


@dataclass
class _Job:
    """A live trial."""

    spec: TrialSpec
    handle: Handle
    tail: wal.Tail
    view: View
    last_sign: float
    """Of life, monotonic."""
    values: list[float] = field(default_factory=list)
    """Of the objective, so far."""
    stopped: str | None = None
    """Why the driver stopped it: ``prune``, ``hang`` or ``interrupt``; ``adopted``: it had ended before."""
    reason: str | None = None


class Driver:
    """Runs a search to its end, or until it is interrupted."""

    def __init__(
        self,
        config: Config,
        search: Search,
        launcher: Launcher,
        recorder: Callable[[Callable[[str], None]], Recorder | NoRecorder],
        screen: Screen,
        tags: Mapping[str, str],
    ) -> None:
        """``recorder`` is made once the search is open, and handed a function that tells people a line."""
        self._config, self._search, self._launcher, self._screen = config, search, launcher, screen
        self._make_recorder, self._tags = recorder, tags
        sweep = config.sweep
        self._objective = sweep.objective if sweep else SUCCESS
        self._window = sweep.objective_window if sweep else 3
        direction = sweep.direction if sweep else "maximize"
        self.status = Status(search.total, launcher.slots, self._objective, direction)
        self._waiting: list[TrialSpec] = []
        self._jobs: list[_Job] = []
        self._ended: list[TrialSpec] = []
        self._signals: list[int] = []
        self._stop_by: float | None = None
        self.recorded: Any = None
        """The recorder's report."""

    def run(self) -> int:
        """Drive. Returns 0, or 128 + the signal that ended it; raises UserError, with nothing changed, before."""
        # The recorder's thread may be at work when a slot comes free: at the usual 5 ms it would keep this one waiting
        # after each of the dozens of statements that a proposal takes.
        sys.setswitchinterval(0.0005)
        self._search.open()
        try:
            with _Signals(self._signals) as self._noticed:
                woken = self._noticed.woken
                self._begin()
                done = False
                try:
                    self._loop(woken)
                    done = not self._signals
                finally:
                    self._launcher.close()
                    self._screen.show(self.status)
                    self._close_recorder(done)
                    for spec in self._ended:
                        self._with_run_id(spec)
                    self._screen.close()
        finally:
            self._search.close()
        return 128 + self._signals[0] if self._signals else 0

    def _begin(self) -> None:
        self._recorder = self._make_recorder(self._screen.note)
        if self._config.sweep is not None:
            tags = {"study": self._search.name, **self._tags}
            file = self._search.folder / "study.yaml"
            self._recorder.start_study(self._search.uid, self._search.name, tags=tags, artifacts=[file])
        for trial in self._search.ended():
            self._note_ended(trial)
        for trial in self._search.unrecorded():
            assert trial.spec is not None
            self._record_start(trial.spec)
            self._record_end(trial.spec, trial.state, trial.reason, trial.value)
        for spec in self._search.unfinished():
            if (spec.folder / RESULT).exists():
                self._adopt(spec)
            else:
                self._waiting.append(spec)
        if not self._waiting and len(self.status.ended()) >= self._search.total:
            self.status.preparing = False  # nothing is left to do, so nobody needs a warm parent
        else:
            self._launcher.ready()

    def _adopt(self, spec: TrialSpec) -> None:
        """A trial whose job ended under an earlier driver, which died before it had told anyone."""
        view = self.status.views.setdefault(spec.number, View(spec.number, spec.config.algorithm.iterations))
        job = _Job(spec, None, wal.Tail(spec.folder / METRICS), view, time.monotonic(), stopped="adopted")
        self._record_start(spec)
        self._follow(job)
        job.tail.close()
        self._conclude(job, Exit(0, None, ""))

    def _note_ended(self, trial: Ended) -> None:
        """A trial that ended under an earlier driver: shown, and recorded where that driver didn't get so far."""
        view = View(
            trial.number, self._config.algorithm.iterations, trial.state, value=trial.value, reason=trial.reason
        )
        view.step = view.total if trial.state == "finished" else 0
        self.status.views[trial.number] = view
        self._count(view, trial.spec)
        if trial.spec is not None:
            self._record_start(trial.spec)
            self._record_end(trial.spec, trial.state, trial.reason, trial.value)

    def _loop(self, woken: socket.socket) -> None:
        while True:
            self._collect()
            if not self._signals:
                self._fill()
            if not self._jobs and (self._signals or not self._more_to_come()):
                return
            if self._signals:
                self._stop_all()
            for job in self._jobs:
                self._follow(job)
            self._screen.show(self.status)
            self._sleep(woken)

    def _sleep(self, woken: socket.socket) -> None:
        tick = 0.1 if self.status.preparing or self._signals else TICK
        for ready in multiprocessing.connection.wait([woken, *self._launcher.sentinels()], tick):
            if ready is woken:
                woken.recv(4096)

    def _more_to_come(self) -> bool:
        return bool(self._waiting) or self.status.preparing

    def _fill(self) -> None:
        """Give every free slot a trial."""
        if self.status.preparing:
            if not self._launcher.ready():
                return
            self.status.preparing = False
        while len(self._jobs) < self._launcher.slots:
            spec = self._waiting.pop(0) if self._waiting else self._search.next()
            while self._search.stillborn:
                self._note_ended(self._search.stillborn.pop())
            if spec is None:
                return
            self._start(spec)

    def _start(self, spec: TrialSpec) -> None:
        view = self.status.views.get(spec.number) or View(spec.number, spec.config.algorithm.iterations)
        view.state, view.began = "starting", view.began or time.monotonic()
        self.status.views[spec.number] = view
        handle = self._launcher.start(spec.folder)
        self._jobs.append(_Job(spec, handle, wal.Tail(spec.folder / METRICS), view, time.monotonic()))
        self._record_start(spec)

    def _follow(self, job: _Job) -> None:
        """Read what a job has written, and see whether it should go on."""
        now = time.monotonic()
        for record in job.tail.read():
            job.last_sign = now
            job.view.step = record.step
            if job.view.state == "starting":
                job.view.state = "running"
            job.view.success = record.metrics.get(SUCCESS, job.view.success)
            value = record.metrics.get(self._objective)
            if value is not None and value == value:
                job.values.append(value)
                if SUCCESS in record.metrics or self._objective.startswith("Eval"):
                    self._consider_pruning(job, record.step)
        job.spec = self._with_run_id(job.spec)
        if job.stopped is None and now - job.last_sign > self._config.launcher.hang_timeout:
            job.stopped = "hang"
            job.reason = f"no sign of life for {self._config.launcher.hang_timeout:g} s"
            self._launcher.stop(job.handle, grace=0)

    def _with_run_id(self, spec: TrialSpec) -> TrialSpec:
        """Note MLflow's id of the run in ``trial.json``, once the recorder knows it."""
        if spec.mlflow_run_id is None and (run_id := self._recorder.run_id(spec.number)) is not None:
            spec = replace(spec, mlflow_run_id=run_id)
            update(spec)
        return spec

    def _consider_pruning(self, job: _Job, step: int) -> None:
        standing = summarise(job.values, self._window)
        assert standing is not None
        if self._search.report(job.spec.number, step, standing) and job.stopped is None:
            job.stopped, job.view.state = "prune", "stopping"
            job.reason = f"{self._objective} {standing:.3f} after {step} iterations: too far behind"
            self._launcher.stop(job.handle, PRUNE_GRACE)

    def _collect(self) -> None:
        """Conclude the jobs that have ended."""
        for job in list(self._jobs):
            ended = self._launcher.poll(job.handle)
            if ended is not None:
                self._follow(job)
                self._jobs.remove(job)
                job.tail.close()
                self._conclude(job, ended)

    def _conclude(self, job: _Job, ended: Exit) -> None:
        spec, result = job.spec, read_result(job.spec.folder)
        if result is None and job.stopped == "prune":
            write_result(spec.folder, "pruned", job.reason or "")
            self._end(job, "pruned", summarise(job.values, self._window), job.reason)
        elif result is None and job.stopped == "interrupt":
            job.view.state = "interrupted"
            self._recorder.end_trial(spec.number, "interrupted")
        elif result is None:
            self._died(job, job.reason if job.stopped == "hang" and job.reason else ended.reason)
        elif result.get("status") == "finished":
            value = self._value(spec.folder)
            if value is None and self._config.sweep is not None:
                self._end(job, "failed", None, f"{self._objective} was never measured")
            else:
                self._end(job, "finished", value, None)
        elif result.get("status") == "pruned":
            self._end(job, "pruned", summarise(job.values, self._window), str(result.get("reason")))
        else:
            self._end(job, "failed", None, str(result.get("reason") or "no reason given"))

    def _value(self, folder: Path) -> float | None:
        """The objective, from the whole log: a trial may have had several jobs."""
        values = [r.metrics[self._objective] for r in wal.read(folder / METRICS) if self._objective in r.metrics]
        return summarise([value for value in values if value == value], self._window)

    def _died(self, job: _Job, reason: str) -> None:
        """A job ended without a result: it goes on from its checkpoint, unless it has too often."""
        if job.spec.attempt >= self._config.launcher.max_retries:
            attempts = job.spec.attempt + 1
            told = f"{reason} ({attempts} attempts)" if attempts > 1 else reason
            write_result(job.spec.folder, "failed", told)
            self._end(job, "failed", None, told)
            return
        self._screen.note(f"trial {job.spec.number}: {reason}; going on from its last checkpoint")
        spec = replace(job.spec, attempt=job.spec.attempt + 1)
        update(spec)
        self._waiting.insert(0, spec)

    def _end(self, job: _Job, state: str, value: float | None, reason: str | None) -> None:
        self._search.tell(job.spec.number, state, value, reason)
        view = job.view
        self._ended.append(job.spec)
        view.state, view.value, view.reason = state, value, reason
        view.seconds = time.monotonic() - view.began if view.began is not None else None
        self._count(view, job.spec)
        self._record_end(job.spec, state, reason, value)

    def _count(self, view: View, spec: TrialSpec | None) -> None:
        if view.state != "finished" or view.value is None:
            return
        if view.number == 0:
            self.status.baseline = view.value
        best_number, best_value = self.status.best or (view.number, None)
        # Of equals the first trial is the best, whichever ended first.
        first_of_equals = view.value == best_value and view.number < best_number
        if first_of_equals or better(self.status.direction, view.value, best_value):
            self.status.best = (view.number, view.value)
            if spec is not None and self._config.sweep is not None:
                best.write(self._search.folder, spec, view.value, self._objective)

    def _stop_all(self) -> None:
        """Ctrl-C: jobs may checkpoint. Once more, or no answer: they are killed."""
        if self._stop_by is None:
            self._stop_by = time.monotonic() + STOP_GRACE
            self.status.stopping = True
            for job in self._jobs:
                job.stopped = job.stopped or "interrupt"
                job.view.state = "stopping"
                self._launcher.stop(job.handle, STOP_GRACE)
        if len(self._signals) > 1 or time.monotonic() > self._stop_by + KILL_GRACE:
            for job in self._jobs:
                self._launcher.stop(job.handle, grace=0)

    def _record_start(self, spec: TrialSpec) -> None:
        tags = {
            "study": spec.study,
            "trial": spec.number,
            "seed": spec.seed,
            "attempt": spec.attempt,
            "device": spec.config.device,
            "physics": resolve_backend(spec.config.physics.backend, spec.config.device),
            **self._tags,
        }
        self._recorder.start_trial(
            spec.number,
            spec.folder,
            spec.uid,
            name=f"{'trial' if self._config.sweep is not None else 'run'}_{spec.number:04d}",
            config=to_plain(replace(spec.config, sweep=None)),
            searched=spec.params,
            tags=tags,
            artifacts=[spec.folder / CONFIG],
        )

    def _record_end(self, spec: TrialSpec, state: str, reason: str | None, value: float | None) -> None:
        result = read_result(spec.folder) or {}
        tags = {
            "failure_reason" if state == "failed" else "reason": reason,
            "eval_set_hash": result.get("eval_set_hash"),
            "objective": value,
        }
        artifacts = [spec.folder / name for name in ARTIFACTS]
        self._recorder.end_trial(
            spec.number,
            cast(Outcome, state),
            tags={name: tag for name, tag in tags.items() if tag is not None},
            artifacts=[path for path in artifacts if path.exists()],
            policy=spec.folder / "policy.npz" if state == "finished" else None,
        )

    def _close_recorder(self, done: bool) -> None:
        if not done:
            gone = time.monotonic() - (self._stop_by - STOP_GRACE) if self._stop_by is not None else 0.0
            patience = 0.5 if len(self._signals) > 1 else max(0.5, INTERRUPT_BUDGET - gone)
            self.recorded = self._recorder.close("interrupted", patience)
            return
        finished = any(view.state == "finished" for view in self.status.views.values())
        tags = {}
        if self.status.best is not None:
            tags = {"best_trial": str(self.status.best[0]), "best_objective": f"{self.status.best[1]:.6g}"}
        self._noticed.raising = (
            True  # nothing is left that must not be torn, and nobody waits for a server that is gone
        )
        with suppress(KeyboardInterrupt):
            self.recorded = self._recorder.close("finished" if finished else "failed", RECORDER_PATIENCE, tags=tags)
        self._noticed.raising = False


class _Signals:
    """While this is entered, SIGINT and SIGTERM are noted down and wake the loop; nothing is torn out of a write."""

    def __init__(self, noted: list[int]) -> None:
        self._noted = noted
        self.raising = False
        """Whether a signal raises KeyboardInterrupt as well."""
        self.woken, self._write = socket.socketpair()
        self.woken.setblocking(False)
        self._write.setblocking(False)

    def __enter__(self) -> "_Signals":
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        self._wakeup = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._noted.append(number)
        if self.raising:
            raise KeyboardInterrupt

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.woken.close()
        self._write.close()
