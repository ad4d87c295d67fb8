"""Several processes that train one policy: under the launcher, and under the command ``torchrun`` itself."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import harness
import pytest
import team_jobs
import torch
from test_run import comparable

from orchestrator import plan
from orchestrator.config import Config
from orchestrator.driver import Driver
from orchestrator.errors import UserError
from orchestrator.job import spec
from orchestrator.job.distributed import Processes
from orchestrator.job.run import run_trial
from orchestrator.launch.base import JOB, Exit
from orchestrator.launch.local import LocalLauncher
from orchestrator.record import wal
from orchestrator.recording import NoRecorder

TWO = "launcher.nproc_per_node=2"
SHORT = "task.episode_length=2"  # and so are the videos of them


@pytest.fixture
def start(small_config: Callable[..., Config]) -> Iterator[Callable[..., Callable[[], Exit]]]:
    """Start a job of two processes in a trial's folder; what comes back waits for its end."""
    launchers = []

    def begin(folder: Path, entry: str = JOB) -> Callable[[], Exit]:
        launcher = LocalLauncher(small_config(TWO).launcher, "cpu", single=True, entry=entry)
        launchers.append(launcher)
        until(launcher.ready)
        job = launcher.start(folder)

        def ended() -> Exit:
            until(lambda: launcher.poll(job) is not None)
            return launcher.poll(job)

        return ended

    yield begin
    for launcher in launchers:
        launcher.close()


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def ranks(folder: Path) -> list[int]:
    """The processes of a job, by the agent that has started them."""
    lock = folder / "job.lock"
    tasks = Path("/proc") / (lock.read_text() if lock.exists() else "none yet") / "task"
    return sorted(int(pid) for children in tasks.glob("*/children") for pid in children.read_text().split())


def steps(folder: Path) -> list[int]:
    return [record.step for record in wal.read(folder / spec.METRICS)] if (folder / spec.METRICS).exists() else []


class TestLearning:
    @pytest.fixture
    def learn(self, trial, start):
        def both(name: str, *overrides: str) -> tuple[list, list, list]:
            """What one process alone, the first of two and the second of two came to."""
            alone, together = trial(f"{name}_alone", *overrides), trial(f"{name}_together", *overrides)
            ended = start(together, "team_jobs:learn")
            team_jobs.learn(alone)
            assert ended().code == 0, (together / "job.log").read_text()
            paths = alone / "rank_0.pt", together / "rank_0.pt", together / "rank_1.pt"
            return tuple(torch.load(path, weights_only=True) for path in paths)

        return both

    def test_two_with_half_the_rooms_each_learn_what_one_with_all_of_them_does(self, learn):
        # With one mini-batch that is the whole rollout no order of samples tells them apart.
        alone, first, second = learn(
            "same",
            "algorithm.num_mini_batches=1",
            "algorithm.num_learning_epochs=1",
            "algorithm.symmetry=none",
            "algorithm/rnd=default",
        )
        for one, a, b in zip(alone, first, second, strict=True):
            torch.testing.assert_close(torch.cat([a["goals"], b["goals"]]), one["goals"], atol=0, rtol=0)
        one, a, b = alone[0], first[0], second[0]
        torch.testing.assert_close(torch.cat([a["advantages"], b["advantages"]], 1), one["advantages"])
        assert a["advantages"].mean().abs() > 1e-3  # so it was not each process for itself
        assert set(one["gradients"]) == set(a["gradients"])
        assert any(name.startswith("rnd.predictor") for name in one["gradients"])
        for name, gradient in one["gradients"].items():
            torch.testing.assert_close(a["gradients"][name], gradient, atol=1e-6, rtol=1e-4)
        for name in ("actor", "critic", "rnd"):
            normaliser = {k: v for k, v in one["algorithm"][f"{name}_state_dict"].items() if "normalizer" in k}
            assert len(normaliser) == 4
            for key, value in normaliser.items():
                torch.testing.assert_close(a["algorithm"][f"{name}_state_dict"][key], value, atol=1e-6, rtol=1e-5)
        for metrics, other in ((a["scalars"], b["scalars"]), (a["scalars"], one["scalars"])):
            assert metrics == pytest.approx(other, rel=1e-3, abs=1e-5)

    def test_both_have_the_same_networks_to_the_last_bit_and_other_experience(self, learn):
        _, first, second = learn("equal", "algorithm/rnd=default", "policy.obs_groups.critic=[policy,privileged]")
        for a, b in zip(first, second, strict=True):
            torch.testing.assert_close(a["algorithm"], b["algorithm"], atol=0, rtol=0)
            assert not torch.equal(a["goals"], b["goals"])
            assert not torch.equal(a["noise"], b["noise"])
        rates = [told[-1]["scalars"]["PPO/learning_rate_max"] for told in (first, second)]
        assert rates[0] == rates[1] != pytest.approx(3e-4)  # it was adapted


class TestTrial:
    def test_one_process_alone_writes_and_an_interrupted_training_goes_on_bit_for_bit(self, trial, start):
        settings = ("algorithm.iterations=20", "evaluation.every=10", "algorithm/rnd=default", TWO, SHORT)
        whole, parts = trial("whole", *settings), trial("parts", *settings)
        ended = start(whole)
        stopped = start(parts)
        until(lambda: len(steps(parts)) > 2 and len(ranks(parts)) == 2)
        os.kill(ranks(parts)[1], signal.SIGTERM)  # one is told, all stop
        told = stopped()
        assert (told.code, told.signal) == (143, None), (parts / "job.log").read_text()
        assert not (parts / "result.json").exists()
        assert (done := steps(parts)[-1]) < 20
        assert [p.name for p in (parts / "checkpoints").iterdir() if f"{done:06d}" in p.name]
        with pytest.raises(UserError, match="checkpoint is of 2 processes, not 1"):
            run_trial(parts)

        assert ended().code == 0, (whole / "job.log").read_text()
        assert start(parts)().code == 0
        assert comparable(parts) == comparable(whole)
        assert steps(whole) == list(range(1, 21))
        assert len(list(whole.glob("events.out.tfevents.*"))) == 1
        assert (whole / "job.log").read_text().count("iteration 20:") == 1
        assert wal.read(whole / spec.METRICS)[-1].metrics["Train/env_steps"] == 20 * 16 * 16
        result = json.loads((whole / "result.json").read_text())
        assert (result["status"], result["env_steps"]) == ("finished", 20 * 16 * 16)

    def test_the_command_torchrun_does_the_same(self, trial, start):
        launched, typed = trial("launched", TWO, SHORT), trial("typed", SHORT)
        ended = start(launched)
        torchrun = [Path(sys.executable).with_name("torchrun"), "--nproc_per_node=2", "-m", "orchestrator.job"]
        subprocess.run([*torchrun, typed], check=True, capture_output=True, timeout=120)
        assert ended().code == 0
        assert comparable(typed) == comparable(launched)

    def test_all_end_when_training_has_diverged(self, trial, start):
        folder = trial("diverged", TWO, "task.rewards.time.weight=1e30")
        assert start(folder)().code == 1
        result = json.loads((folder / "result.json").read_text())
        assert result["status"] == "failed"
        assert result["reason"].startswith("diverged: ")

    def test_a_mistake_is_told_and_not_what_it_does_to_the_other(self, trial, start):
        folder = trial("mistaken", TWO)
        config = folder / "config.yaml"
        config.write_text(config.read_text().replace("num_envs: 16", "num_envs: 15"))
        told = start(folder)()
        assert told == Exit(2, None, "num_envs=15: expected a multiple of 2, the number of processes")

    def test_when_one_is_killed_the_job_ends_and_its_retry_goes_on_from_the_checkpoint(self, small_config, tmp_path):
        config = small_config(
            TWO, SHORT, "algorithm.iterations=20", "evaluation.every=10", "tracking.uri=null", f"output_dir={tmp_path}"
        )
        made, screen, killed = plan.make(config), harness.Quiet(), []
        folder = tmp_path / config.experiment_name / "trial_0000"

        def kill(_: object) -> None:
            if not killed and len(steps(folder)) > 4 and len(ranks(folder)) == 2:
                killed.append(ranks(folder)[1])
                os.kill(killed[0], signal.SIGKILL)

        screen.on_show = kill
        launcher = LocalLauncher(config.launcher, "cpu", single=True)
        driver = Driver(config, made.search, launcher, lambda tell: NoRecorder(), screen, {})
        assert driver.run() == 0
        assert killed
        (note,) = screen.notes
        assert "killed by SIGKILL" in note
        assert json.loads((folder / "result.json").read_text())["status"] == "finished"
        assert json.loads((folder / "trial.json").read_text())["attempt"] == 1
        assert steps(folder) == list(range(1, 21))
        assert "going on from iteration" in (folder / "job.log").read_text()


class TestRefused:
    def test_rooms_that_cannot_be_shared_out(self, small_config):
        with pytest.raises(UserError, match=r"launcher\.nproc_per_node=3: expected a divisor of num_envs=16"):
            small_config("launcher.nproc_per_node=3")

    def test_rooms_that_torchrun_cannot_share_out(self):
        with pytest.raises(UserError, match="num_envs=16: expected a multiple of 3, the number of processes"):
            Processes(world_size=3).share(16)

    def test_no_process_at_all(self, small_config):
        with pytest.raises(UserError, match=r"launcher\.nproc_per_node=0: expected at least 1"):
            small_config("launcher.nproc_per_node=0")

    def test_a_mini_batch_of_less_than_a_sample_each(self, small_config):
        with pytest.raises(UserError, match=r"algorithm\.num_mini_batches=200: .* one process, 128"):
            small_config(TWO, "algorithm.num_mini_batches=200")

    def test_more_processes_than_gpus(self, small_config, monkeypatch):
        monkeypatch.setattr("orchestrator.devices.gpu_count", lambda: 1)
        with pytest.raises(UserError, match=r"launcher\.nproc_per_node=2: expected at most 1, the GPUs"):
            small_config(TWO, "device=cuda")
