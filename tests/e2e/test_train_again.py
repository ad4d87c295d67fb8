"""A recorded run is trained again from what MLflow holds."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from mlflow import MlflowClient

PROJECT = Path(__file__).parents[2]
SMALL = ("num_envs=32", "algorithm.iterations=3", "evaluation.every=3", "evaluation.num_rooms=20", "seed=5")


@pytest.fixture
def recorded(orchestrator: Callable[..., CompletedProcess[str]], tmp_path: Path) -> tuple[MlflowClient, str]:
    done = orchestrator(*SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("nav")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run.info.run_id


def test_equal_bit_for_bit_or_said_not_to_be(recorded: tuple[MlflowClient, str], tmp_path: Path) -> None:
    client, run_id = recorded
    tags = client.get_run(run_id).data.tags
    assert {"git.commit", "git.dirty", "lock.hash", "version.torch", "version.mujoco", "eval_set_hash"} <= tags.keys()

    def again(run: str) -> CompletedProcess[str]:
        own = (f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}", f"output_dir={tmp_path / 'again'}")
        command = [sys.executable, "-m", "orchestrator.rerun", f"run={run}", *own]
        return subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, timeout=240)

    # The machine that it was recorded on had another launcher, which is not even imported here.
    config = Path(client.download_artifacts(run_id, "config.yaml", str(tmp_path)))
    config.write_text(config.read_text().replace("orchestrator.launch.local:LocalLauncher", "antigravity:Launcher"))
    client.log_artifact(run_id, str(config))

    equal = again(run_id)
    assert equal.returncode == 0, equal.stdout + equal.stderr
    assert "equal bit for bit" in equal.stdout
    assert f"trial_0000 of nav is trained again as {tmp_path / 'again' / 'nav' / 'trial_0000'}\n" in equal.stdout
    assert " -> " not in equal.stdout  # the same code, committed or not
    (rerun,) = client.search_runs([client.get_run(run_id).info.experiment_id], f"tags.rerun_of = '{run_id}'")
    assert rerun.info.status == "FINISHED"

    config.write_text(config.read_text().replace("seed: 5\n", "seed: 6\n"))  # as if it had been another
    client.log_artifact(run_id, str(config))
    client.set_tag(run_id, "version.torch", "1.0")
    other = again(run_id)
    assert "not equal from iteration 1 on" in other.stdout
    assert "other code: version.torch: 1.0 -> " in other.stdout

    nowhere = again("0" * 32)
    assert nowhere.returncode == 2
    assert nowhere.stderr.count("\n") == 1
    assert "neither a folder nor a run in sqlite:///" in nowhere.stderr
