"""One command searches, with real trainings and a real MLflow; small, so that little is learnt."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import optuna
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SMALL = ("num_envs=32", "algorithm.iterations=4", "evaluation.every=2", "evaluation.num_rooms=20")
CONFIRM = ("confirm.top_k=1", "confirm.seeds=3")
TRIALS = 3

Orchestrator = Callable[..., CompletedProcess[str]]


def mlflow_runs(store: Path) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{store}")
    experiments = [e.experiment_id for e in client.search_experiments()]
    return {run.info.run_name: (client, run) for run in client.search_runs(experiments)}


def test_a_sweep_and_its_best_again(orchestrator: Orchestrator, tmp_path: Path) -> None:
    search = ("+sweep=reward_weights", f"sweep.n_trials={TRIALS}", "sweep.pruner=null", *SMALL, *CONFIRM)
    done = orchestrator(*search)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "baseline (trial 0)" in done.stdout
    folder = tmp_path / "sweeps" / "reward_weights"
    trials = optuna.load_study(study_name="reward_weights", storage=f"sqlite:///{folder / 'study.db'}").get_trials()
    assert [t.state.name for t in trials] == ["COMPLETE"] * TRIALS

    runs = mlflow_runs(tmp_path / "mlflow.db")
    confirmed = json.loads((folder / "confirm.json").read_text())
    trainings = TRIALS + 2 * len(confirmed["seeds"])
    assert len(runs) == trainings + 1
    client, parent = runs["reward_weights"]
    assert parent.info.status == "FINISHED"
    for number in range(TRIALS):
        own = folder / f"trial_{number:04d}"
        _, run = runs[own.name]
        assert (run.info.status, run.data.tags["mlflow.parentRunId"]) == ("FINISHED", parent.info.run_id)
        assert (run.data.tags["physics"], run.data.tags["cuda_graph"]) == ("mujoco_c", "off")
        assert run.data.tags["doctor"] == "passed"
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

    (comparison,) = confirmed["comparisons"]
    assert confirmed["words"] in done.stdout
    assert comparison["rooms"] == 20
    assert parent.data.tags["verdict"] == confirmed["words"]
    assert parent.data.metrics["Confirm/difference"] == pytest.approx(comparison["difference"])
    for number in (0, comparison["trial"]):
        for seed in confirmed["seeds"]:
            _, run = runs[f"confirm_{number:04d}_seed_{seed}"]
            assert (run.info.status, run.data.tags["mlflow.parentRunId"]) == ("FINISHED", parent.info.run_id)
            assert (run.data.params["seed"], run.data.tags["phase"]) == (str(seed), "confirm")
            with np.load(folder / "confirm" / f"trial_{number:04d}" / f"seed_{seed}" / "eval_rooms.npz") as rooms:
                assert rooms["success_rate"][-1].mean() == pytest.approx(run.data.metrics["Eval/success_rate"])
    assert "confirm.json" in {a.path for a in client.list_artifacts(parent.info.run_id)}

    again = orchestrator("--config-dir", str(folder), "+best=config", "algorithm.iterations=2")
    assert again.returncode == 0, again.stdout + again.stderr
    best = trials[confirmed["winner"] or 0]
    trained = (tmp_path / "sweeps" / "nav" / "trial_0000" / "config.yaml").read_text()
    assert f"weight: {best.params['task.rewards.goal.weight']}" in trained
    assert orchestrator(*search).returncode == 0
    assert len(client.search_runs([parent.info.experiment_id])) == trainings + 2  # and the single run
