"""The one loop: ask -> launch -> tail -> prune -> tell.

The driver owns the order of things, and every step may be its last: what it would need to go on is always on disk
before the next step. A trial is asked for (study), then has a folder (``trial.json``), then a job, then a
``result.json``, then is told (study), then its MLflow run is ended; a driver that starts finds each trial at one of
these points and goes on from there. A trial of several seeds has a folder, a job and a result for each of them, and is
told when all have ended; so has the confirmation of one.

It wakes when a job ends or a signal comes, and twice a second to look at the metrics that have come in.
"""

import errno
import multiprocessing.connection
import os
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
from orchestrator.job.spec import CONFIG, EVALUATIONS, METRICS, RESULT, TrialSpec, update
from orchestrator.launch.base import Exit, Handle, Launcher
from orchestrator.record import wal
from orchestrator.record.mlflow import Recorder
from orchestrator.record.run import Outcome
from orchestrator.report import diagnosis
from orchestrator.report.diagnosis import DIAGNOSIS
from orchestrator.search.base import Ended, Search, Trial, ended_by_runs, evaluation_set, read_result, write_result
from orchestrator.search.objective import SUCCESS, Judge, Score, mean_score
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

ARTIFACTS = (
    RESULT,
    DIAGNOSIS,
    EVALUATIONS,
    "policy.onnx",
    "ppo_trace.png",
    "trajectories.png",
    "replay.mp4",
    "job.log",
)


class NoRecorder:
    """Where nothing is to be recorded in MLflow."""

    def start_study(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def start_trial(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def end_trial(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def update_study(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def name_champion(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def run_id(self, key: str) -> str | None:
        """None."""

    def close(self, *_: Any, **__: Any) -> None:
        """Nothing."""


@dataclass
class _Live:
    """A trial under way."""

    trial: Trial
    view: View
    waiting: list[TrialSpec]
    """Trainings that have no job yet, or none any more."""
    steps: dict[int, int] = field(default_factory=dict)
    """Seed -> iteration."""
    successes: dict[int, float] = field(default_factory=dict)
    """Seed -> success rate, the newest."""
    standings: dict[int, dict[int, float]] = field(default_factory=dict)
    """Seed -> iteration -> objective, as if it had ended there."""
    over: str | None = None
    """Why the rest of it isn't trained: it was pruned, or a seed failed."""


@dataclass
class _Job:
    """A training under way."""

    spec: TrialSpec
    live: _Live
    handle: Handle
    tail: wal.Tail
    last_sign: float
    """Of life, monotonic."""
    records: list[wal.Record] = field(default_factory=list)
    """Those that the objective is measured by."""
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
        self._judge = Judge(config)
        objectives = self._judge.objectives
        self.status = Status(
            search.total,
            launcher.slots,
            ", ".join(o.metric for o in objectives),
            objectives[0].direction,
            runs=config.sweep.seeds_per_trial if config.sweep else 1,
            fresh_seeds=config.confirm.seeds,
        )
        self._begun: list[_Live] = []
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
                    if not self._signals:
                        self._conclude_search()
                        done = True
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
        for ended in self._search.ended():
            self._note_ended(ended)
        for ended in self._search.unrecorded():
            self._record_ended(ended)
        for trial in self._search.unfinished():
            live = self._take(trial)
            for spec in list(live.waiting):
                if (spec.folder / RESULT).exists():
                    self._adopt(live, spec)
        self.status.confirmations = self._search.confirmations()
        if not self._begun and self._nothing_left():
            self.status.preparing = False  # nothing is left to do, so nobody needs a warm parent
        else:
            self._launcher.ready()

    def _nothing_left(self) -> bool:
        return (
            len(self.status.ended()) >= self._search.total
            and len(self.status.ended(confirms=True)) >= self.status.confirmations
        )

    def _take(self, trial: Trial) -> _Live:
        """A trial that is to be trained."""
        total = sum(spec.config.algorithm.iterations for spec in trial.runs)
        new = View(trial.number, total, runs=len(trial.runs), confirms=trial.confirms)
        live = _Live(trial, self.status.views.setdefault(trial.name, new), list(trial.runs))
        self._begun.append(live)
        return live

    def _adopt(self, live: _Live, spec: TrialSpec) -> None:
        """A training whose job ended under an earlier driver, which died before it had told anyone."""
        if spec not in live.waiting:
            return  # the trial is over: another of its seeds failed
        live.waiting.remove(spec)
        job = _Job(spec, live, None, wal.Tail(spec.folder / METRICS), time.monotonic(), stopped="adopted")
        self._record_start(spec, live.trial)
        self._follow(job)
        job.tail.close()
        self._conclude(job, Exit(0, None, ""))

    def _note_ended(self, ended: Ended) -> None:
        """A trial that ended under an earlier driver: shown, and recorded where that driver didn't get so far."""
        trial = ended.trial
        total = self._config.algorithm.iterations * max(1, len(trial.runs))
        view = View(
            trial.number, total, ended.state, reason=ended.reason, runs=max(1, len(trial.runs)), confirms=trial.confirms
        )
        view.step = view.total if ended.state == "finished" else 0
        self.status.views[trial.name] = view
        self._count(view, ended)
        self._record_ended(ended)

    def _record_ended(self, ended: Ended) -> None:
        for spec in ended.trial.runs:
            result = read_result(spec.folder) or {}
            score = ended.score if len(ended.trial.runs) == 1 else self._judge.score(wal.read(spec.folder / METRICS))
            self._record_start(spec, ended.trial)
            self._record_end(spec, str(result.get("status", ended.state)), result.get("reason") or ended.reason, score)

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
        return bool(self._begun) or self.status.preparing

    def _fill(self) -> None:
        """Give every free slot a training: of a trial that is under way, else of a new one."""
        if self.status.preparing:
            if not self._launcher.ready():
                return
            self.status.preparing = False
        while len(self._jobs) < self._launcher.slots:
            live = next((live for live in self._begun if live.waiting), None)
            if live is None:
                trial = self._search.next()
                while self._search.stillborn:
                    self._note_ended(self._search.stillborn.pop())
                self.status.confirmations = self._search.confirmations()
                if trial is None:
                    return
                live = self._take(trial)
            self._start(live, live.waiting.pop(0))

    def _start(self, live: _Live, spec: TrialSpec) -> None:
        view = live.view
        if view.state not in ("running", "stopping"):
            view.state = "starting"
        view.began = view.began or time.monotonic()
        handle = self._launcher.start(spec.folder)
        self._jobs.append(_Job(spec, live, handle, wal.Tail(spec.folder / METRICS), time.monotonic()))
        self._record_start(spec, live.trial)

    def _follow(self, job: _Job) -> None:
        """Read what a job has written, and see whether it should go on."""
        now, live, seed = time.monotonic(), job.live, job.spec.seed
        for record in job.tail.read():
            job.last_sign = now
            live.steps[seed] = record.step
            if live.view.state == "starting":
                live.view.state = "running"
            if SUCCESS in record.metrics:
                live.successes[seed] = record.metrics[SUCCESS]
            self._judge_so_far(job, record)
        live.view.step = sum(live.steps.values())
        if live.successes:
            live.view.success = sum(live.successes.values()) / len(live.successes)
        job.spec = self._with_run_id(job.spec)
        if job.stopped is None and now - job.last_sign > self._config.launcher.hang_timeout:
            job.stopped = "hang"
            job.reason = f"no sign of life for {self._config.launcher.hang_timeout:g} s"
            self._launcher.stop(job.handle, grace=0)

    def _judge_so_far(self, job: _Job, record: wal.Record) -> None:
        """See how the trial stands, where it has one objective: the mean over its seeds, once all have got so far."""
        objective = self._judge.one
        if objective is None or objective.metric not in record.metrics:
            return
        job.records.append(record)
        evaluated = SUCCESS in record.metrics or objective.metric.startswith("Eval")
        score = self._judge.score(job.records)
        if score is None or not evaluated or self._search.reports_runs:
            return
        live = job.live
        live.standings.setdefault(job.spec.seed, {})[record.step] = score.values[0]
        standing = [by_step.get(record.step) for by_step in live.standings.values()]
        known = [value for value in standing if value is not None]
        if len(known) == len(live.trial.runs):
            self._consider_pruning(live, record.step, sum(known) / len(known), f"after {record.step} iterations")

    def _consider_pruning(self, live: _Live, step: int, value: float, when: str) -> None:
        if self._search.report(live.trial, step, value) and live.over is None:
            objective = self._judge.objectives[0].metric
            self._give_up(live, f"{objective} {value:.3f} {when}: too far behind")

    def _give_up(self, live: _Live, reason: str) -> None:
        """Train the rest of a trial no further."""
        live.over = reason
        for spec in live.waiting:
            write_result(spec.folder, "pruned", reason)
        live.waiting.clear()
        for job in self._jobs:
            if job.live is live and job.stopped is None:
                job.stopped, job.reason, live.view.state = "prune", reason, "stopping"
                self._launcher.stop(job.handle, PRUNE_GRACE)

    def _with_run_id(self, spec: TrialSpec) -> TrialSpec:
        """Note MLflow's id of the run in ``trial.json``, once the recorder knows it."""
        if spec.mlflow_run_id is None and (run_id := self._recorder.run_id(spec.uid)) is not None:
            spec = replace(spec, mlflow_run_id=run_id)
            update(spec)
        return spec

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
        """What became of a training, and whether its trial has ended with it."""
        spec, result = job.spec, read_result(job.spec.folder)
        if result is None and job.stopped == "prune":
            result = self._write_result(spec, "pruned", job.reason or "")
        elif result is None and job.stopped == "interrupt":
            job.live.view.state = "interrupted"
            self._recorder.end_trial(spec.uid, "interrupted")
            return
        elif result is None:
            result = self._died(job, job.reason if job.stopped == "hang" and job.reason else ended.reason)
            if result is None:
                return
        live, score = job.live, self._judge.score(wal.read(spec.folder / METRICS))
        self._ended.append(spec)
        status, reason = str(result.get("status")), result.get("reason")
        self._record_end(spec, status, str(reason) if reason else None, score if status == "finished" else None)
        if status == "failed" and live.over is None:
            self._give_up(live, f"seed {spec.seed} failed: {reason}")
        elif status == "finished" and self._search.reports_runs and score is not None:
            index = [run.seed for run in live.trial.runs].index(spec.seed)
            self._consider_pruning(live, index, score.values[0], f"with seed {spec.seed}")
        if not live.waiting and not any(other.live is live for other in self._jobs):
            self._end(live)

    def _write_result(self, spec: TrialSpec, status: str, reason: str) -> Mapping[str, Any]:
        write_result(spec.folder, status, reason)
        return {"status": status, "reason": reason}

    def _died(self, job: _Job, reason: str) -> Mapping[str, Any] | None:
        """A job ended without a result: it goes on from its checkpoint, unless it has too often. Raises OSError when
        the disk is full: to try again would only fail one trial after the other."""
        if os.strerror(errno.ENOSPC) in reason:
            raise OSError(
                f"{job.live.trial.name}: {reason}; with space again, the same command goes on where it stopped"
            )
        if job.spec.attempt >= self._config.launcher.max_retries:
            attempts = job.spec.attempt + 1
            told = f"{reason} ({attempts} attempts)" if attempts > 1 else reason
            return self._write_result(job.spec, "failed", told)
        self._screen.note(f"{job.live.trial.name}: {reason}; going on from its last checkpoint")
        spec = replace(job.spec, attempt=job.spec.attempt + 1)
        update(spec)
        job.live.waiting.insert(0, spec)
        return None

    def _end(self, live: _Live) -> None:
        """All trainings of a trial have ended."""
        results = [read_result(spec.folder) or {} for spec in live.trial.runs]
        ended = ended_by_runs(live.trial, results, self._judge)
        if ended.state == "pruned":
            ended = replace(ended, score=self._standing(live))
        self._begun.remove(live)
        self._search.tell(ended)
        view = live.view
        view.state, view.reason = ended.state, ended.reason
        view.seconds = time.monotonic() - view.began if view.began is not None else None
        self._count(view, ended)

    def _standing(self, live: _Live) -> Score | None:
        """Of a trial that was pruned: the mean over what its seeds had reached."""
        scores = [self._judge.score(wal.read(spec.folder / METRICS)) for spec in live.trial.runs]
        known = [score for score in scores if score is not None]
        return mean_score(known)[0] if known else None

    def _count(self, view: View, ended: Ended) -> None:
        """Show what a trial came to; keep the best."""
        objective, score = self._judge.one, ended.score
        if score is None:
            return
        if objective is None:
            view.values = score.values
        else:
            view.value = score.values[0]
        broken = self._judge.broken(score) if ended.state == "finished" else []
        if broken:
            view.reason = f"breaks {', '.join(broken)}"
        if objective is None or view.confirms or ended.state != "finished":
            return
        if view.number == 0:
            self.status.baseline = view.value
        number, value = self.status.best or (view.number, None)
        # Of equals the first trial is the best, whichever ended first.
        first_of_equals = score.values[0] == value and view.number < number
        if not broken and (first_of_equals or objective.better(score.values[0], value)):
            self.status.best = (view.number, score.values[0])
            if self._config.confirm.top_k == 0:
                self.status.again = ("the best", "+best=config")

    def _conclude_search(self) -> None:
        """All is trained: what it has come to."""
        findings = self._search.conclude()
        self.status.findings, self.status.again = findings.lines, findings.again
        if self._config.sweep is None:
            return
        files = [*findings.files, *self._write_report()]
        self._recorder.update_study(tags=findings.tags, metrics=findings.metrics, artifacts=files)
        if findings.champion is not None:
            self._recorder.name_champion(findings.champion.run.uid, self._search.name, findings.champion.why)

    def _write_report(self) -> list[Path]:
        from orchestrator.report import sweep as report  # it draws, which takes half a second to import

        try:
            return [report.write(self._search.folder, self._config, self._search.ended())]
        except Exception as error:  # a full disk, a damaged log: no reason to fail a search that has ended
            self._screen.note(f"no report: {error}")
            return []

    def _stop_all(self) -> None:
        """Ctrl-C: jobs may checkpoint. Once more, or no answer: they are killed."""
        if self._stop_by is None:
            self._stop_by = time.monotonic() + STOP_GRACE
            self.status.stopping = True
            for job in self._jobs:
                job.stopped = job.stopped or "interrupt"
                job.live.view.state = "stopping"
                self._launcher.stop(job.handle, STOP_GRACE)
        if len(self._signals) > 1 or time.monotonic() > self._stop_by + KILL_GRACE:
            for job in self._jobs:
                self._launcher.stop(job.handle, grace=0)

    def _record_start(self, spec: TrialSpec, trial: Trial) -> None:
        tags = {
            "study": spec.study,
            "trial": spec.number,
            "phase": "confirm" if trial.confirms else "search",
            "seed": spec.seed,
            "attempt": spec.attempt,
            "device": spec.config.device,
            "physics": resolve_backend(spec.config.physics.backend, spec.config.device),
            "cuda_graph": "on" if spec.config.physics.cuda_graph and spec.config.device != "cpu" else "off",
            **self._tags,
        }
        self._recorder.start_trial(
            spec.uid,
            spec.folder,
            spec.uid,
            name=self._run_name(spec, trial),
            config=to_plain(replace(spec.config, sweep=None)),
            searched=spec.params,
            tags=tags,
            artifacts=[spec.folder / CONFIG],
        )

    def _run_name(self, spec: TrialSpec, trial: Trial) -> str:
        """``trial_0007``, ``trial_0007_seed_2``, ``confirm_0007_seed_181``; ``run_0007`` where nothing is searched."""
        kind = "confirm" if trial.confirms else "trial" if self._config.sweep is not None else "run"
        several = trial.confirms or len(trial.runs) > 1
        return f"{kind}_{spec.number:04d}" + (f"_seed_{spec.seed}" if several else "")

    def _record_end(self, spec: TrialSpec, state: str, reason: str | None, score: Score | None) -> None:
        objectives = [f"{value:.6g}" for value in score.values] if score else []
        tags = {
            **{f"diagnosis.{code}": words for code, words in self._diagnose(spec).items()},
            "failure_reason" if state == "failed" else "reason": reason,
            "eval_set_hash": evaluation_set(spec),
            "objective": ", ".join(objectives) or None,
        }
        artifacts = [spec.folder / name for name in ARTIFACTS]
        self._recorder.end_trial(
            spec.uid,
            cast(Outcome, state),
            tags={name: tag for name, tag in tags.items() if tag is not None},
            artifacts=[path for path in artifacts if path.exists()],
            policy=spec.folder / "policy.npz" if state == "finished" else None,
        )

    def _diagnose(self, spec: TrialSpec) -> Mapping[str, str]:
        """Code -> words of what the training's curves show; written down once, when it has ended."""
        try:
            if not (spec.folder / DIAGNOSIS).exists():
                diagnosis.attach(spec.folder)
        except Exception as error:  # a full disk, a damaged log: no reason to end a search
            self._screen.note(f"{spec.folder.name}: not diagnosed: {error}")
        verdicts = diagnosis.attached(spec.folder)
        self.status.verdicts[str(spec.folder)] = verdicts
        return verdicts

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
