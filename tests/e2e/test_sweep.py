"""One command searches, with real trainings and a real MLflow; small, so that little is learnt."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import optuna
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SMALL = ("num_envs=32", "algorithm.iterations=4", "evaluation.every=2", "evaluation.num_rooms=20")
TRIALS = 3

Orchestrator = Callable[..., CompletedProcess[str]]


def mlflow_runs(store: Path) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{store}")
    experiments = [e.experiment_id for e in client.search_experiments()]
    return {run.info.run_name: (client, run) for run in client.search_runs(experiments)}


def test_a_sweep_and_its_best_again(orchestrator: Orchestrator, tmp_path: Path) -> None:
    done = orchestrator("+sweep=reward_weights", f"sweep.n_trials={TRIALS}", "sweep.pruner=null", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "baseline (trial 0)" in done.stdout
    folder = tmp_path / "sweeps" / "reward_weights"
    trials = optuna.load_study(study_name="reward_weights", storage=f"sqlite:///{folder / 'study.db'}").get_trials()
    assert [t.state.name for t in trials] == ["COMPLETE"] * TRIALS

    runs = mlflow_runs(tmp_path / "mlflow.db")
    assert len(runs) == TRIALS + 1
    client, parent = runs["reward_weights"]
    assert parent.info.status == "FINISHED"
    for number in range(TRIALS):
        own = folder / f"trial_{number:04d}"
        _, run = runs[own.name]
        assert (run.info.status, run.data.tags["mlflow.parentRunId"]) == ("FINISHED", parent.info.run_id)
        assert (run.data.tags["physics"], run.data.tags["cuda_graph"]) == ("mujoco_c", "off")
        assert run.data.params["search.task.rewards.goal.weight"] == str(
            trials[number].params["task.rewards.goal.weight"]
        )
        log = [json.loads(line) for line in (own / "metrics.jsonl").read_text().splitlines()]
        for metric in ("PPO/kl_mean", "PPO/kl_max", "Loss/learning_rate", "Eval/success_rate"):
            logged = [(r["step"], r["metrics"][metric]) for r in log if metric in r["metrics"]]
            assert [(p.step, p.value) for p in client.get_metric_history(run.info.run_id, metric)] == logged
            assert len(logged) == (2 if metric.startswith("Eval") else 4)
        events = EventAccumulator(str(own))
        events.Reload()
        for metric in log[-1]["metrics"]:
            shown = [(e.step, e.value) for e in events.Scalars(metric)]
            expected = [(r["step"], r["metrics"][metric]) for r in log if metric in r["metrics"]]
            assert shown == [(step, pytest.approx(float(value), nan_ok=True)) for step, value in expected]
        assert {"config.yaml", "result.json", "eval.json", "policy.onnx"} <= {
            a.path for a in client.list_artifacts(run.info.run_id)
        }
        assert json.loads((own / "trial.json").read_text())["mlflow_run_id"] == run.info.run_id

    again = orchestrator("--config-dir", str(folder), "+best=config", "algorithm.iterations=2")
    assert again.returncode == 0, again.stdout + again.stderr
    best = max(trials, key=lambda t: t.value)
    trained = (tmp_path / "sweeps" / "navigation" / "trial_0000" / "config.yaml").read_text()
    assert f"weight: {best.params['task.rewards.goal.weight']}" in trained
    finished_again = orchestrator("+sweep=reward_weights", f"sweep.n_trials={TRIALS}", "sweep.pruner=null", *SMALL)
    assert finished_again.returncode == 0
    assert len(mlflow_runs(tmp_path / "mlflow.db")) == TRIALS + 2  # and the single run
