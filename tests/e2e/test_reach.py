"""The second task from the command to the result, with the real thing: a training that only begins to learn."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import mlflow
import numpy as np

from navtask import tasks


def test_one_training(orchestrator: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    done = orchestrator(
        "task=reach",
        "algorithm.iterations=4",
        "evaluation.every=2",
        "evaluation.num_rooms=50",
        "evaluation.further_sets=[wide]",
        "experiment_name=reaching",
        "num_envs=64",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trial = tmp_path / "sweeps" / "reaching" / "trial_0000"
    result = json.loads((trial / "result.json").read_text())
    assert (result["status"], result["iterations"], result["env_steps"]) == ("finished", 4, 4 * 64 * 32)
    sets = json.loads((trial / "eval.json").read_text())["sets"]
    assert sets["box"]["unreachable_share"] == sets["wide"]["unreachable_share"] == 0.0
    assert sets["box"]["set_hash"] != sets["wide"]["set_hash"]
    rooms = np.load(trial / "eval_rooms.npz")
    assert set(rooms.files) == {"step", *tasks.get("reach").metrics}
    assert rooms["final_distance"].shape == (2, 50)
    assert np.isfinite(rooms["final_distance"]).all()
    metrics = [json.loads(line)["metrics"] for line in (trial / "metrics.jsonl").read_text().splitlines()]
    assert {"Episode_Reward/distance", "Policy/action_saturation_elbow", "PPO/kl_mean"} <= set(metrics[-1])
    assert {"Eval/final_distance", "Eval_wide/success_rate"} <= set(metrics[-1])
    assert (trial / "trajectories.png").stat().st_size > 1000

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = mlflow.search_runs(experiment_names=["reaching"], output_format="list")
    assert run.info.status == "FINISHED"
    assert run.data.metrics["Eval/final_distance"] == metrics[-1]["Eval/final_distance"]
