"""The schema, and the trial's folder."""

import json
import os
from pathlib import Path

import harness
import pytest

from navtask.physics import resolve_backend
from orchestrator.config import Config, from_plain, to_plain
from orchestrator.errors import UserError, nearest
from orchestrator.job.spec import TrialSpec, read, update, write


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return harness.configure(tmp_path_factory.mktemp("out"))


def spec(config: Config, folder: Path, number: int = 3) -> TrialSpec:
    params = {"policy.hidden_dims": [8, 8], "algorithm.gamma": 0.9}
    return TrialSpec(study="s", number=number, seed=7, params=params, folder=folder, config=config)


def test_plain_and_back(config: Config) -> None:
    assert from_plain(to_plain(config)) == config


def test_defaults_follow_the_device(config: Config) -> None:
    assert (config.device, config.num_envs, config.policy.hidden_dims) == ("cpu", 256, [64, 64])
    assert config.evaluation.set == config.task.rooms.name == "open"
    assert set(config.evaluation.frozen) == {"open", "dense", "barn"}


@pytest.mark.parametrize("device", ["auto", "cuda:0"])
def test_a_gpu_is_used_where_there_is_one(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.devices.gpu_count", lambda: 1)
    config = harness.configure(tmp_path, f"device={device}")
    assert config.device.startswith("cuda")
    assert (config.num_envs, config.policy.hidden_dims) == (4096, [256, 256])
    assert resolve_backend(config.physics.backend, config.device) == "mujoco_warp"
    assert config.physics.cuda_graph


def test_physics_that_does_not_fit_the_device_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert harness.configure(tmp_path, "physics=mujoco_warp", "device=cpu").physics.backend == "mujoco_warp"
    monkeypatch.setattr("orchestrator.devices.gpu_count", lambda: 0)
    with pytest.raises(UserError, match=r"device=cuda: expected cpu: this machine has no GPU"):
        harness.configure(tmp_path, "device=cuda")
    monkeypatch.setattr("orchestrator.devices.gpu_count", lambda: 1)
    with pytest.raises(UserError, match=r"device=cuda:1: expected cuda:0 to cuda:0"):
        harness.configure(tmp_path, "device=cuda:1")
    with pytest.raises(UserError, match=r"physics\.backend=mujoco_c: expected auto or mujoco_warp on device cuda"):
        harness.configure(tmp_path, "physics=mujoco_c", "device=cuda")


def test_a_registered_term_can_be_added_on_the_command_line(tmp_path: Path) -> None:
    changed = harness.configure(tmp_path, "~task.rewards.stuck", "+task.rewards.stuck={weight: -0.5}")
    assert changed.task.rewards["stuck"].weight == -0.5


def test_a_trial_is_written_whole_and_read_back(config: Config, tmp_path: Path) -> None:
    written = spec(config, tmp_path / "trial_0003")
    write(written)
    assert read(written.folder) == written
    assert sorted(f.name for f in tmp_path.iterdir()) == ["trial_0003"]
    data = json.loads((written.folder / "trial.json").read_text())
    assert (data["host"], data["pid"]) == (os.uname().nodename, os.getpid())


def test_a_folder_is_created_once(config: Config, tmp_path: Path) -> None:
    first = spec(config, tmp_path / "trial")
    write(first)
    with pytest.raises(FileExistsError):
        write(spec(config, tmp_path / "trial", number=4))
    assert read(first.folder) == first
    assert len(list(tmp_path.iterdir())) == 1


def test_an_update_changes_the_trial_not_its_config(config: Config, tmp_path: Path) -> None:
    first = spec(config, tmp_path / "trial")
    write(first)
    before = (first.folder / "config.yaml").read_bytes()
    from dataclasses import replace

    update(replace(first, attempt=2, mlflow_run_id="r"))
    assert read(first.folder) == replace(first, attempt=2, mlflow_run_id="r")
    assert (first.folder / "config.yaml").read_bytes() == before


def test_a_strangers_config_runs_nothing(config: Config, tmp_path: Path) -> None:
    first = spec(config, tmp_path / "trial")
    write(first)
    marker = tmp_path / "marker"
    for evil in (
        f"seed: !!python/object/apply:os.system ['touch {marker}']",
        f"_target_: os.system\ncommand: touch {marker}",
        "device: ${oc.env:HOME}",
        "task: {rewards: {goal: {weight: {_target_: os.getcwd}}}}",
        "[]",
        "just text",
    ):
        (first.folder / "config.yaml").write_text(evil)
        with pytest.raises(UserError):
            read(first.folder)
    assert not marker.exists()


def test_what_is_no_trial_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no trial here \(trial\.json is missing\)"):
        read(tmp_path)
    (tmp_path / "trial.json").write_text("{")
    with pytest.raises(UserError):
        read(tmp_path)


def test_no_password_is_written(tmp_path: Path) -> None:
    config = harness.configure(tmp_path, "tracking.uri=postgresql://me:secret@host/db")
    write(spec(config, tmp_path / "trial"))
    assert all(b"secret" not in f.read_bytes() for f in (tmp_path / "trial").iterdir())


def test_nearest() -> None:
    assert nearest("dens", ["open", "dense"]) == "; did you mean 'dense'?"
    assert nearest("xyz", ["open", "dense"]) == "; known: dense, open"
    assert nearest("xyz", []) == ""
