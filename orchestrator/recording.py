"""What MLflow is told of a search: the names, tags and files of its runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from navtask.physics import resolve_backend
from orchestrator.config import Config, to_plain
from orchestrator.job.spec import CONFIG, EVALUATIONS, RESULT, TrialSpec, update
from orchestrator.record.mlflow import Recorder
from orchestrator.record.run import Outcome
from orchestrator.report.diagnosis import DIAGNOSIS
from orchestrator.search.base import Findings, Search, Trial, evaluation_set, read_result
from orchestrator.search.objective import Score
from orchestrator.search.sweep import STUDY

PATIENCE = 30.0
"""Seconds without progress that the recorder may take to ship what is left when all is done: its server may be gone,
and come back."""

ARTIFACTS = (
    RESULT,
    DIAGNOSIS,
    EVALUATIONS,
    "policy.onnx",
    "policy.npz",
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

    def withdraw_champion(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def run_id(self, key: str) -> str | None:
        """None."""

    def close(self, *_: Any, **__: Any) -> None:
        """Nothing."""


class Recording:
    """Puts the driver's events into the recorder's terms. Each training is a run; a sweep is the parent of its own."""

    def __init__(
        self, recorder: Recorder | NoRecorder, config: Config, search: Search, tags: Mapping[str, str]
    ) -> None:
        """Opens the parent run of a sweep. ``tags`` go to every run."""
        self._recorder, self._is_sweep, self._search, self._tags = recorder, config.sweep is not None, search, tags
        if self._is_sweep:
            file = search.folder / STUDY  # written once, when the study begins
            tags = {"study": search.name, **tags}
            recorder.start_study(search.uid, search.name, started=file.stat().st_mtime, tags=tags, artifacts=[file])

    def start(self, spec: TrialSpec, trial: Trial) -> None:
        """A training of a trial begins, or goes on."""
        config = spec.config
        tags = {
            "study": spec.study,
            "trial": spec.number,
            "phase": "confirm" if trial.confirms else "search",
            "seed": spec.seed,
            "attempt": spec.attempt,
            "device": config.device,
            "physics": resolve_backend(config.physics.backend, config.device),
            "cuda_graph": "on" if config.physics.cuda_graph and config.device != "cpu" else "off",
            **self._tags,
        }
        self._recorder.start_trial(
            spec.uid,
            spec.folder,
            spec.uid,
            started=spec.started,
            name=self._run_name(spec, trial),
            config=to_plain(replace(config, sweep=None)),
            searched=spec.params,
            tags=tags,
            artifacts=[spec.folder / CONFIG],
        )

    def _run_name(self, spec: TrialSpec, trial: Trial) -> str:
        """``trial_0007`` as its folder, ``trial_0007_seed_2``, ``confirm_0007_seed_181``."""
        kind = "confirm" if trial.confirms else "trial"
        several = trial.confirms or len(trial.runs) > 1
        return f"{kind}_{spec.number:04d}" + (f"_seed_{spec.seed}" if several else "")

    def note_run_id(self, spec: TrialSpec) -> TrialSpec:
        """Note MLflow's id of the run in ``trial.json``, once the recorder knows it."""
        if spec.mlflow_run_id is None and (run_id := self._recorder.run_id(spec.uid)) is not None:
            spec = replace(spec, mlflow_run_id=run_id)
            update(spec)
        return spec

    def interrupt(self, spec: TrialSpec) -> None:
        """A training is left, to be gone on with."""
        self._recorder.end_trial(spec.uid, "interrupted")

    def end(
        self, spec: TrialSpec, state: str, reason: str | None, score: Score | None, verdicts: Mapping[str, str]
    ) -> None:
        """A training has ended. ``verdicts``: diagnosis code -> words."""
        objectives = [f"{value:.6g}" for value in score.values] if score else []
        tags = {
            **{f"diagnosis.{code}": words for code, words in verdicts.items()},
            "failure_reason" if state == "failed" else "reason": reason,
            "eval_set_hash": evaluation_set(spec),
            "objective": ", ".join(objectives) or None,
        }
        artifacts = [spec.folder / name for name in ARTIFACTS]
        self._recorder.end_trial(
            spec.uid,
            cast(Outcome, state),
            ended=(read_result(spec.folder) or {}).get("ended"),
            tags={name: tag for name, tag in tags.items() if tag is not None},
            artifacts=[path for path in artifacts if path.exists()],
            policy=spec.folder / "policy.npz" if state == "finished" else None,
        )

    def conclude(self, findings: Findings, report: Sequence[Path]) -> None:
        """What a sweep has come to."""
        files = [*findings.files, *report]
        self._recorder.update_study(tags=findings.tags, metrics=findings.metrics, artifacts=files)
        if findings.champion is not None:
            self._recorder.name_champion(findings.champion.run.uid, self._search.name, findings.champion.why)
        elif findings.confirmed:
            self._recorder.withdraw_champion(self._search.name)

    def close(
        self, state: str, patience: float, best: tuple[int, float] | None = None, *, at_most: float = math.inf
    ) -> Sequence[str]:
        """Ship all, see ``Recorder.close``. ``state`` of the sweep; ``best``: its best trial and objective.

        Returns lines for people: what came of it beside what had been asked for.
        """
        tags = {} if best is None else {"best_trial": str(best[0]), "best_objective": f"{best[1]:.6g}"}
        report = self._recorder.close(cast(Outcome, state), patience, at_most=at_most, tags=tags)
        if report is None:
            return []
        name = f"models:/{self._search.name}@champion"
        if report.has_champion:
            return [f"model: {name}"]
        return [f"{name} is withdrawn: {report.withdrawn} had it, and is no winner now"] if report.withdrawn else []
