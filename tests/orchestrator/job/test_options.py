"""Every learning option, set by config alone, through a whole trial: trained, evaluated, exported."""

import json
import math
from pathlib import Path

import onnxruntime
import pytest
import torch
from test_run import comparable

from orchestrator.job import checkpoint, spec
from orchestrator.job.curves import Curves
from orchestrator.job.run import run_trial
from orchestrator.job.runner import Runner
from orchestrator.record import wal

OPTIONS = {
    "default": (),
    "asymmetric critic": ("policy.obs_groups.critic=[policy,privileged]",),
    "heteroscedastic actor": ("policy.distribution=HeteroscedasticGaussianDistribution",),
    "beta actor": ("policy.distribution=BetaDistribution",),
    "no symmetry": ("algorithm.symmetry=none",),
    "mirror loss": ("algorithm.symmetry=mirror_loss",),
    "augmentation and mirror loss": ("algorithm.symmetry=both",),
    "random network distillation": ("algorithm/rnd=default", "algorithm.rnd.obs_groups=[privileged]"),
    "history": ("task.history=4",),
    "lidar noise and drop-out": ("task.lidar.noise_std=0.02", "task.lidar.dropout=0.05"),
    "bootstrap with the observation before": ("algorithm.bootstrap=current",),
    "fixed schedule": ("algorithm.schedule=fixed",),
    "all at once": (
        "policy.obs_groups.critic=[policy,privileged]",
        "policy.distribution=HeteroscedasticGaussianDistribution",
        "algorithm.symmetry=both",
        "algorithm/rnd=default",
        "task.history=2",
        "task.lidar.noise_std=0.02",
        "task.lidar.dropout=0.05",
    ),
}


@pytest.fixture
def trained(trial):
    """Metrics of each iteration, the last checkpoint's algorithm, and the exported policy."""

    def run(option: str) -> tuple[list[dict[str, float]], dict, Path]:
        # Short episodes: videos of them are quickly drawn.
        small = ("num_envs=64", "algorithm.iterations=3", "evaluation.every=3", "task.episode_length=2")
        folder = trial("option", *small, *OPTIONS[option])
        assert run_trial(folder) == 0
        metrics = [record.metrics for record in wal.read(folder / spec.METRICS)]
        return metrics, checkpoint.latest(folder)["algorithm"], folder / "policy.onnx"

    return run


@pytest.mark.parametrize("option", OPTIONS)
def test_trains_evaluates_and_exports(trained, option):
    metrics, algorithm, policy = trained(option)
    assert len(metrics) == 3
    assert all(math.isfinite(value) for of_one in metrics for value in of_one.values())
    assert "Eval/success_rate" in metrics[-1]
    assert json.loads(policy.with_name("result.json").read_text())["status"] == "finished"
    # It has learned: values fit better than none, and what is random moved off its start.
    assert metrics[-1]["PPO/kl_mean"] > 1e-5
    weights = algorithm["actor_state_dict"]["mlp.0.weight"]
    assert weights.isfinite().all()

    # And each option is what it says.
    session = onnxruntime.InferenceSession(policy)
    (given,) = session.get_inputs()
    frames = {"history": 4, "all at once": 2}.get(option, 1)
    assert given.shape[-1] == weights.shape[1] == 78 * frames  # the actor never sees the simulator's truth
    critic = algorithm["critic_state_dict"]["mlp.0.weight"].shape[1]
    assert critic == 78 * frames + (76 if option in ("asymmetric critic", "all at once") else 0)
    assert ("Loss/mirror" in metrics[0]) == (option in ("mirror loss", "augmentation and mirror loss", "all at once"))
    paid = option in ("random network distillation", "all at once")
    assert ("Loss/rnd" in metrics[0]) == ("Train/intrinsic_reward" in metrics[0]) == paid
    rates = {rate for m in metrics for rate in (m["PPO/learning_rate_min"], m["PPO/learning_rate_max"])}
    assert (len(rates) == 1) == (option == "fixed schedule")


def test_a_beta_policy_never_asks_for_more_than_there_is(trained):
    metrics, _, policy = trained("beta actor")
    assert all(of_one[f"Policy/action_saturation_{axis}"] == 0 for of_one in metrics for axis in ("vx", "vy", "wz"))
    (actions,) = onnxruntime.InferenceSession(policy).run(["actions"], {"obs": torch.randn(100, 78).numpy() * 10})
    assert abs(actions).max() < 1


def test_a_heteroscedastic_policy_is_more_certain_in_some_states_than_in_others(trained):
    _, algorithm, _ = trained("heteroscedastic actor")
    last = max(name for name in algorithm["actor_state_dict"] if name.startswith("mlp.") and name.endswith("weight"))
    assert algorithm["actor_state_dict"][last][3:].abs().max() > 0  # began at 0: alike in all states


def test_a_curious_training_goes_on_bit_for_bit(trial):
    whole, parts = (trial(name, "task.episode_length=2", *OPTIONS["all at once"]) for name in ("whole", "parts"))
    assert run_trial(whole) == 0
    half = spec.read(parts)
    curves, calls = Curves(parts), iter([False, True])
    assert Runner(half.config, seed=half.seed, folder=parts, threads=1).train(curves, lambda: next(calls)) is False
    curves.close()
    assert run_trial(parts) == 0
    assert comparable(parts) == comparable(whole)
