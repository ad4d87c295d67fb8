import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from navtask.nav.terms import REWARDS
from navtask.numpy_policy import NumpyPolicy
from orchestrator.errors import UserError
from orchestrator.job import checkpoint, spec
from orchestrator.job.curves import Curves
from orchestrator.job.run import run_trial
from orchestrator.job.runner import Diverged, Runner
from orchestrator.record import wal

CURVES = {
    "Train/mean_reward",
    "Train/mean_episode_length",
    "Train/env_steps",
    *(f"Episode_Termination/{c}" for c in ("success", "collision", "timeout", "out_of_bounds", "diverged")),
    *(
        f"Episode_Reward/{t}"
        for t in (
            "goal",
            "progress",
            "face_goal",
            "time",
            "near_obstacle",
            "action_smooth",
            "backward",
            "stuck",
            "collision",
            "timeout",
            "out_of_bounds",
        )
    ),
    *(f"Loss/{n}" for n in ("value", "surrogate", "entropy", "learning_rate")),
    *(
        f"PPO/{n}"
        for n in (
            "kl_mean",
            "kl_max",
            "kl_first",
            "clip_fraction",
            "explained_variance",
            "grad_norm_actor",
            "grad_norm_critic",
            "learning_rate_min",
            "learning_rate_max",
        )
    ),
    "Policy/mean_std",
    *(f"Policy/action_saturation_{a}" for a in ("vx", "vy", "wz")),
    *(f"Perf/{n}" for n in ("total_fps", "collection_time", "learning_time")),
}
EVALUATION = {
    "success_rate",
    "collision_rate",
    "timeout_rate",
    "spl",
    "sct",
    "barn_score",
    "time_to_goal",
    "path_length",
    "min_clearance",
    "action_change",
    "worst_decile_success",
}


def comparable(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """The curves but for times."""
    return [
        (record.step, {k: v for k, v in record.metrics.items() if not k.startswith("Perf/")})
        for record in wal.read(folder / spec.METRICS)
    ]


class TestFinished:
    @pytest.fixture
    def done(self, trial) -> Path:
        settings = ("algorithm.iterations=12", "evaluation.every=6", "evaluation.further_sets=[dense]")
        folder = trial("done", *settings)
        assert run_trial(folder) == 0
        return folder

    def test_leaves_everything_that_was_promised(self, done):
        assert {
            "trial.json",
            "config.yaml",
            "metrics.jsonl",
            "checkpoints",
            "policy.onnx",
            "policy.npz",
            "ppo_trace.npz",
            "ppo_trace.png",
            "trajectories.png",
            "replay.mp4",
            "eval.json",
            "eval_rooms.npz",
            "result.json",
        } <= {p.name for p in done.iterdir()}
        assert list(done.glob("events.out.tfevents.*"))
        assert not [p for p in done.rglob(".*") if p.name != ".lock"]  # nothing half written

        result = json.loads((done / "result.json").read_text())
        assert (result["status"], result["reason"]) == ("finished", None)
        assert result["iterations"] == 12
        assert result["env_steps"] == 12 * 16 * 16
        assert [e["step"] for e in result["evaluations"]] == [6, 12]
        sets = json.loads((done / "eval.json").read_text())["sets"]
        assert {name: len(told["set_hash"]) for name, told in sets.items()} == {"open": 16, "dense": 16}

        records = wal.read(done / "metrics.jsonl")
        assert [r.step for r in records] == list(range(1, 13))
        assert CURVES <= set().union(*(r.metrics for r in records))
        always = {k for k in CURVES if not k.startswith(("Episode_", "Train/mean"))}
        assert all(always <= r.metrics.keys() for r in records)
        last = records[-1].metrics
        rates = [last[f"Eval/{n}_rate"] for n in ("success", "collision", "timeout")]
        assert sum(rates) == pytest.approx(1.0)
        reported = {k.split("/")[1] for k in last if k.startswith("Eval/")}
        assert {n for n in reported if not n.endswith(("_low", "_high"))} <= EVALUATION
        assert {"success_rate_low", "success_rate_high"} <= reported
        assert "Eval_dense/success_rate" in last
        assert not any(k.endswith("_low") for k in records[5].metrics)
        endings = [sum(v for k, v in r.metrics.items() if k.startswith("Episode_Termination/")) for r in records]
        assert all(total == pytest.approx(1.0) for total in endings if total)

        trace = np.load(done / "ppo_trace.npz")
        assert trace["kl"].shape == trace["learning_rate"].shape == (12, 20)

    def test_exported_policies_are_the_trained_one(self, done):
        trained = spec.read(done)
        runner = Runner(trained.config, seed=trained.seed, folder=done, threads=1)
        assert runner.resume()
        observations = runner.env.get_observations()
        observations["policy"] = torch.rand(16, 78, generator=torch.Generator().manual_seed(0)) * 2 - 1
        with torch.no_grad():
            expected = runner.algorithm.get_policy()(observations).numpy()
        session = onnxruntime.InferenceSession(done / "policy.onnx")
        (onnx,) = session.run(["actions"], {"obs": observations["policy"].numpy()})
        np.testing.assert_allclose(onnx, expected, atol=1e-5)

        in_numpy = NumpyPolicy(done / "policy.npz")
        np.testing.assert_allclose(in_numpy(observations["policy"].numpy()), expected, atol=1e-5)
        interface = runner.env.interface()
        assert in_numpy.interface == interface
        assert json.loads(session.get_modelmeta().custom_metadata_map["interface"]) == interface

    def test_keeps_what_each_evaluated_room_came_to(self, done):
        rooms = np.load(done / "eval_rooms.npz")
        evaluations = json.loads((done / "result.json").read_text())["evaluations"]
        assert rooms["step"].tolist() == [e["step"] for e in evaluations] == [6, 12]
        assert set(rooms.files) - {"step"} == EVALUATION
        for row, evaluation in enumerate(evaluations):
            for name in EVALUATION & {k.removeprefix("Eval/") for k in evaluation}:
                assert np.nanmean(rooms[name][row]) == pytest.approx(evaluation[f"Eval/{name}"], rel=1e-5)


def test_says_which_engine_it_runs_on_and_whether_a_graph_is_captured(small_config, tmp_path, capsys):
    for physics in ("mujoco_c", "mujoco_warp"):
        Runner(small_config(f"physics={physics}"), seed=1, folder=tmp_path, threads=1)
        assert f"physics: {physics} on cpu, no CUDA graph\n" in capsys.readouterr().out


class TestReproducible:
    def test_same_seed_same_curves(self, trial):
        first, second, other = trial("a"), trial("b"), trial("c", "seed=2")
        for folder in (first, second, other):
            assert run_trial(folder) == 0
        assert comparable(first) == comparable(second)
        assert comparable(first) != comparable(other)

    @pytest.mark.parametrize("symmetry", ["augmentation", "none"])
    def test_an_interrupted_training_goes_on_bit_for_bit(self, trial, symmetry):
        whole = trial("whole", "algorithm.iterations=6", f"algorithm.symmetry={symmetry}", "task.history=2")
        assert run_trial(whole) == 0
        parts = trial("parts", "algorithm.iterations=6", f"algorithm.symmetry={symmetry}", "task.history=2")
        half = spec.read(parts)
        runner = Runner(half.config, seed=half.seed, folder=parts, threads=1)
        curves = Curves(parts)
        calls = iter([False, False, True])
        assert runner.train(curves, lambda: next(calls)) is False
        curves.close()
        assert [r.step for r in wal.read(parts / "metrics.jsonl")] == [1, 2, 3]
        assert run_trial(parts) == 0
        assert comparable(parts) == comparable(whole)

    def test_lost_iterations_are_trained_again(self, trial):
        whole, parts = trial("whole"), trial("parts")
        assert run_trial(whole) == 0
        half = spec.read(parts)
        runner = Runner(half.config, seed=half.seed, folder=parts, threads=1)
        curves = Curves(parts)

        def killed() -> bool:
            if runner.iteration == 3:
                raise KeyboardInterrupt  # after the curves of 3, whose checkpoint is only due at 4
            return False

        with pytest.raises(KeyboardInterrupt):
            runner.train(curves, killed)
        curves.close()
        assert [r.step for r in wal.read(parts / "metrics.jsonl")] == [1, 2, 3]
        assert run_trial(parts) == 0
        assert comparable(parts) == comparable(whole)


class TestFailed:
    def test_a_loss_that_is_not_finite_fails_with_the_reason_and_keeps_the_evaluations(self, trial):
        folder = trial("diverged", "algorithm.iterations=6", "evaluation.every=1")
        trained = spec.read(folder)
        runner = Runner(trained.config, seed=1, folder=folder, threads=1)
        curves = Curves(folder)

        def poison() -> bool:
            with torch.no_grad():
                runner.algorithm.critic.mlp[0].weight[0, 0] = math.nan
            return False

        with pytest.raises(Diverged, match=r"Loss/.* at iteration 2"):
            runner.train(curves, poison)
        curves.close()
        assert len(runner.evaluations) == 1
        records = wal.read(folder / "metrics.jsonl")
        assert math.isnan(records[-1].metrics["Loss/value"])

    def test_exit_code_and_result(self, trial):
        folder = trial("diverged", "task.rewards.time.weight=1e30")
        assert run_trial(folder) == 1
        result = json.loads((folder / "result.json").read_text())
        assert result["status"] == "failed"
        assert result["reason"].startswith("diverged: ")

    def test_a_term_that_goes_wrong_is_a_mistake_and_its_traceback_is_in_the_log(self, trial, monkeypatch, capfd):
        monkeypatch.setitem(REWARDS._terms, "time", replace(REWARDS["time"], function=lambda context: context.tme))
        with pytest.raises(UserError, match=r"reward term 'time' raised .*'tme' \(test_run\.py:.*see job.log"):
            run_trial(trial("slip"))
        assert "Traceback" in capfd.readouterr().err


class TestStopped:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_a_signal_leaves_a_checkpoint_and_no_result(self, trial, number, code):
        folder = trial("stopped", "algorithm.iterations=100000")
        job = subprocess.Popen([sys.executable, "-m", "orchestrator.job", str(folder)], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (folder / "metrics.jsonl").exists() or len(wal.read(folder / "metrics.jsonl")) < 3:
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(job.pid, number)
        assert job.wait(timeout=10) == code
        assert not (folder / "result.json").exists()
        state = checkpoint.latest(folder)
        assert state["iteration"] == wal.read(folder / "metrics.jsonl")[-1].step


class TestCheckpoint:
    def test_a_damaged_one_is_passed_over(self, tmp_path):
        checkpoint.save(tmp_path, 1, {"x": torch.ones(3)})
        newest = checkpoint.save(tmp_path, 2, {"x": torch.zeros(3)})
        newest.write_bytes(newest.read_bytes()[:100])
        assert checkpoint.latest(tmp_path)["iteration"] == 1

    def test_loading_executes_nothing(self, tmp_path):
        class Trap:
            def __reduce__(self):
                return (os.system, (f"touch {tmp_path}/executed",))

        (tmp_path / "checkpoints").mkdir()
        torch.save({"iteration": 1, "x": Trap()}, tmp_path / "checkpoints" / "model_000001.pt")
        assert checkpoint.latest(tmp_path) is None
        assert not (tmp_path / "executed").exists()

    def test_the_last_two_are_kept(self, tmp_path):
        for i in range(5):
            checkpoint.save(tmp_path, i, {})
        assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["model_000003.pt", "model_000004.pt"]

    def test_a_full_disk_harms_nothing(self, tmp_path, monkeypatch):
        checkpoint.save(tmp_path, 1, {"x": torch.ones(3)})

        def full(*args, **kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(torch, "save", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(tmp_path, 2, {})
        monkeypatch.undo()
        assert checkpoint.latest(tmp_path)["iteration"] == 1
        assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["model_000001.pt"]
