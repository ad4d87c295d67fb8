"""The one loop: ask -> launch -> tail -> prune -> tell.

The driver owns the order of things, and every step may be its last: what it would need to go on is always on disk
before the next step. A trial is asked for (study), then has a folder (``trial.json``), then a job, then a
``result.json``, then is told (study), then its MLflow run is ended; a driver that starts finds each trial at one of
these points and goes on from there. A trial of several seeds has a folder, a job and a result for each of them, and is
told when all have ended; so has the confirmation of one.

It wakes when a job ends or a signal comes, and twice a second to look at the metrics that have come in.
"""

import multiprocessing.connection
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator import health
from orchestrator.config import Config
from orchestrator.files import DISK_FULL, Damaged
from orchestrator.interruption import STOP_GRACE, Interruption
from orchestrator.job.spec import CHECKPOINTS, METRICS, RESULT, TrialSpec, update
from orchestrator.launch.base import MISTAKE, Exit, Launcher
from orchestrator.live import Job, LiveTrial
from orchestrator.record import wal
from orchestrator.record.mlflow import Recorder
from orchestrator.recording import PATIENCE, NoRecorder, Recording
from orchestrator.report import diagnosis
from orchestrator.report.diagnosis import DIAGNOSIS
from orchestrator.search.base import Ended, Search, Trial, ended_by_runs, read_result, write_result
from orchestrator.search.best import ADD_BEST
from orchestrator.search.objective import SUCCESS, Judge, Score, mean_score
from orchestrator.status import Screen, Status, View

TICK = 0.5
"""Seconds between two looks at what jobs have written."""

PRUNE_GRACE = 5.0


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
        self.status = Status(
            search.total,
            launcher.slots,
            self._judge.objectives,
            self._judge.window,
            runs=config.sweep.seeds_per_trial if config.sweep else 1,
            fresh_seeds=config.confirm.seeds,
        )
        self._begun: list[LiveTrial] = []
        self._jobs: list[Job] = []
        self._ended: list[TrialSpec] = []
        self._told_of: set[str] = set()

    def run(self) -> int:
        """Drive. Returns 0, or 128 + the signal that ended it; raises UserError, with nothing changed, before."""
        # The recorder's thread may be at work when a slot comes free: at the usual 5 ms it would keep this one waiting
        # after each of the dozens of statements that a proposal takes.
        sys.setswitchinterval(0.0005)
        self._search.open()
        health.note(self._search.folder, self._tags)
        try:
            with Interruption() as self._interruption:
                recorder = self._make_recorder(self._screen.note)
                self._recording = Recording(recorder, self._config, self._search, self._tags)
                done = False
                try:
                    self._resume()
                    self._loop()
                    if not self._interruption.asked:
                        self._conclude_search()
                        done = True
                finally:
                    self._launcher.close()
                    self._screen.show(self.status)
                    self._close_recording(done)
                    self._screen.close()
        finally:
            self._search.close()
        return self._interruption.exit_code

    # -- what an earlier driver left ---------------------------------------------------------------------------------

    def _resume(self) -> None:
        for ended in self._search.ended():
            self._note_ended(ended)
        self._tell_damage()
        for ended in self._search.unrecorded():
            self._record_ended(ended)
        for trial in self._search.unfinished():
            self._adopt(self._take(trial))
        self.status.confirmations = self._search.confirmations()
        if not self._begun and self._nothing_left():
            self.status.preparing = False  # nothing is left to do, so nobody needs a warm parent
        else:
            self._launcher.ready()

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
            status, reason = str(result.get("status", ended.state)), result.get("reason") or ended.reason
            score = ended.score if len(ended.trial.runs) == 1 else self._judge.score(wal.read(spec.folder / METRICS))
            self._recording.start(spec, ended.trial)
            self._record_end(spec, status, reason, score if status == "finished" else None)

    def _adopt(self, live: LiveTrial) -> None:
        """Trainings whose jobs ended under an earlier driver, which died before it had told anyone."""
        over = [spec for spec in live.waiting if (spec.folder / RESULT).exists()]
        live.waiting = [spec for spec in live.waiting if spec not in over]
        jobs = [Job(spec, live, None, stopped="adopted") for spec in over]
        self._jobs += jobs  # all of them first: what one came to may end the trial
        for job in jobs:
            self._recording.start(job.spec, live.trial)
            self._finish(job, Exit(0, None, ""))

    def _nothing_left(self) -> bool:
        return (
            len(self.status.ended()) >= self._search.total
            and len(self.status.ended(confirms=True)) >= self.status.confirmations
        )

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        stop = self._interruption
        while True:
            self._collect()
            if not stop.asked:
                self._fill()
            if not self._jobs and (stop.asked or not self._more_to_come()):
                return
            if stop.asked:
                self._stop_all()
            for job in self._jobs:
                self._follow(job)
            self._screen.show(self.status)
            self._sleep()

    def _more_to_come(self) -> bool:
        return bool(self._begun) or self.status.preparing

    def _sleep(self) -> None:
        woken = self._interruption.woken
        tick = 0.1 if self.status.preparing or self._interruption.asked else TICK
        for ready in multiprocessing.connection.wait([woken, *self._launcher.sentinels()], tick):
            if ready is woken:
                woken.recv(4096)

    # -- ask, launch -------------------------------------------------------------------------------------------------

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

    def _take(self, trial: Trial) -> LiveTrial:
        """A trial that is to be trained."""
        total = sum(spec.config.algorithm.iterations for spec in trial.runs)
        new = View(trial.number, total, runs=len(trial.runs), confirms=trial.confirms)
        live = LiveTrial(trial, self.status.views.setdefault(trial.name, new), list(trial.runs))
        self._begun.append(live)
        return live

    def _start(self, live: LiveTrial, spec: TrialSpec) -> None:
        view = live.view
        if view.state not in ("running", "stopping"):
            view.state = "starting"
        view.began = view.began or time.monotonic()
        started, handle = time.time(), self._launcher.start(spec.folder)
        if spec.started is None:
            spec = replace(spec, started=round(started, 3))
            update(spec)
        self._jobs.append(Job(spec, live, handle))
        self._recording.start(spec, live.trial)

    # -- tail, prune -------------------------------------------------------------------------------------------------

    def _follow(self, job: Job) -> None:
        """Read what a job has written, and see whether it should go on."""
        for record in job.read():
            job.live.advance(job.spec.seed, record)
            self._judge_so_far(job, record)
        job.spec = self._recording.note_run_id(job.spec)
        timeout = self._config.launcher.hang_timeout
        if job.stopped is None and job.silent_for() > timeout:
            job.stopped, job.reason = "hang", f"no sign of life for {timeout:g} s"
            self._launcher.stop(job.handle, grace=0)

    def _judge_so_far(self, job: Job, record: wal.Record) -> None:
        """See how the trial stands, where it has one objective: the mean over its seeds, once all have got so far."""
        objective = self._judge.one
        if objective is None or not self._judge.judges_by(record):
            return
        job.records.append(record)
        evaluated = SUCCESS in record.metrics or objective.metric.startswith("Eval")
        score = self._judge.score(job.records)
        if score is None or not evaluated or self._search.reports_runs:
            return
        standing = job.live.stand(job.spec.seed, record.step, score.values[0])
        if standing is not None:
            self._consider_pruning(job.live, record.step, standing, f"after {record.step} iterations")

    def _consider_pruning(self, live: LiveTrial, step: int, value: float, when: str) -> None:
        if self._search.report(live.trial, step, value) and live.over is None:
            objective = self._judge.objectives[0].metric
            self._give_up(live, f"{objective} {value:.3f} {when}: too far behind")

    def _give_up(self, live: LiveTrial, reason: str) -> None:
        """Train the rest of a trial no further."""
        live.over = reason
        for spec in live.waiting:
            write_result(spec.folder, "pruned", reason)
        live.waiting.clear()
        for job in self._jobs:
            if job.live is live and job.stopped is None:
                job.stopped, job.reason, live.view.state = "prune", reason, "stopping"
                self._launcher.stop(job.handle, PRUNE_GRACE)

    # -- tell --------------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Conclude the jobs that have ended."""
        for job in list(self._jobs):
            ended = self._launcher.poll(job.handle)
            if ended is not None:
                self._finish(job, ended)

    def _finish(self, job: Job, ended: Exit) -> None:
        """Read the last that a job has written, and conclude it."""
        self._follow(job)
        self._jobs.remove(job)
        job.close()
        self._conclude(job, ended)

    def _conclude(self, job: Job, ended: Exit) -> None:
        """What became of a training, and whether its trial has ended with it."""
        spec, live, result = job.spec, job.live, read_result(job.spec.folder)
        if result is None and job.stopped == "prune":
            result = write_result(spec.folder, "pruned", job.reason or "")
        elif result is None and job.stopped == "interrupt":
            live.view.state = "interrupted"
            self._recording.interrupt(spec)
            return
        elif result is None:
            result = self._died(job, ended)
            if result is None:
                return
        score = self._judge.score(wal.read(spec.folder / METRICS))
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

    def _died(self, job: Job, ended: Exit) -> Mapping[str, Any] | None:
        """A job ended without a result: it goes on from its checkpoint, unless it has too often, or would only meet the
        same mistake again. Raises OSError when the disk is full: to try again would fail one trial after the other."""
        reason = job.reason if job.stopped == "hang" and job.reason else ended.reason
        if any(os.strerror(code) in reason for code in DISK_FULL):
            raise OSError(
                f"{job.live.trial.name}: {reason}; with space again, the same command goes on where it stopped"
            )
        if ended.code == MISTAKE:
            job.live.view.mistaken = True
            return write_result(job.spec.folder, "failed", reason)
        if job.spec.attempt >= self._config.launcher.max_retries:
            attempts = job.spec.attempt + 1
            told = f"{reason} ({attempts} attempts)" if attempts > 1 else reason
            return write_result(job.spec.folder, "failed", told)
        begun = any(job.spec.folder.glob(CHECKPOINTS))
        again = "going on from its last checkpoint" if begun else "starting it again"
        self._screen.note(f"{job.live.trial.name}: {reason}; {again}")
        spec = replace(job.spec, attempt=job.spec.attempt + 1)
        update(spec)
        job.live.waiting.insert(0, spec)
        return None

    def _record_end(self, spec: TrialSpec, state: str, reason: str | None, score: Score | None) -> None:
        verdicts = self._diagnose(spec, state)
        self.status.verdicts[str(spec.folder)] = verdicts
        self._recording.end(spec, state, reason, score, verdicts)

    def _diagnose(self, spec: TrialSpec, state: str) -> Mapping[str, str]:
        """Code -> words of what the training's curves show; written down once, when it has ended."""
        try:
            try:
                return diagnosis.read(spec.folder / DIAGNOSIS)
            except (FileNotFoundError, Damaged):
                if state == "failed" and not wal.read(spec.folder / METRICS):
                    return {}  # before its first iteration
                diagnosis.attach(spec.folder)
                return diagnosis.read(spec.folder / DIAGNOSIS)
        except Exception as error:  # a full disk, a damaged log: no reason to end a search
            self._screen.note(f"{spec.folder.name}: not diagnosed: {error}")
            return {}

    def _end(self, live: LiveTrial) -> None:
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

    def _standing(self, live: LiveTrial) -> Score | None:
        """Of a trial that was pruned: the mean over what its seeds had reached; None where not all were compared."""
        scores = [self._judge.score(wal.read(spec.folder / METRICS)) for spec in live.trial.runs]
        known = [score for score in scores if score is not None]
        return mean_score(known)[0] if len(known) == len(scores) and not self._search.reports_runs else None

    def _count(self, view: View, ended: Ended) -> None:
        self.status.count(view, ended, self._judge)
        if self.status.best is not None and self._config.confirm.top_k == 0:
            self.status.again = ("the best", ADD_BEST)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _conclude_search(self) -> None:
        """All is trained: what it has come to."""
        findings = self._search.conclude()
        self.status.findings, self.status.again = findings.lines, findings.again
        if self._config.sweep is not None:
            self._recording.conclude(findings, self._write_report())
        self._tell_damage()

    def _tell_damage(self) -> None:
        """Say once what of the trials' files can't be read."""
        for line in self._search.careful.lines:
            if line not in self._told_of:
                self._told_of.add(line)
                self._screen.note(line)

    def _write_report(self) -> list[Path]:
        from orchestrator.report import sweep as report  # it draws, which takes half a second to import

        try:
            return [report.write(self._search.folder, self._config, self._search.ended(), self._search.careful)]
        except Exception as error:  # a full disk, a damaged log: no reason to fail a search that has ended
            self._screen.note(f"no report: {error}")
            return []

    def _stop_all(self) -> None:
        """Ctrl-C: jobs may checkpoint. Once more, or no answer: they are killed."""
        if not self.status.stopping:
            self.status.stopping = True
            for job in self._jobs:
                job.stopped = job.stopped or "interrupt"
                job.live.view.state = "stopping"
                self._launcher.stop(job.handle, STOP_GRACE)
        if self._interruption.urgent:
            for job in self._jobs:
                self._launcher.stop(job.handle, grace=0)

    def _close_recording(self, done: bool) -> None:
        if done:
            finished = any(view.state == "finished" for view in self.status.views.values())
            with self._interruption.cuts_short():  # nobody waits for a server that is gone
                told = self._recording.close("finished" if finished else "failed", PATIENCE, self.status.best)
                self.status.findings = [*self.status.findings, *told]
        else:
            left = self._interruption.time_left
            self._recording.close("interrupted", left, at_most=left)
        for spec in self._ended:  # those whose runs the server was told of only now
            self._recording.note_run_id(spec)
