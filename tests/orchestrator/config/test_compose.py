"""What Hydra composes, and what is refused of it."""

from pathlib import Path

import harness
import pytest

from navtask.physics import resolve_backend
from orchestrator.config import Config
from orchestrator.errors import UserError


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return harness.configure(tmp_path_factory.mktemp("out"))


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
