"""Real trainings, small ones, set up to suffer: the run's doctor names what ails them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from navtask.nav.env import NavEnv
from orchestrator.config import compose
from orchestrator.job import spec
from orchestrator.job.curves import Curves
from orchestrator.job.ppo import PPO
from orchestrator.job.runner import Diverged, Runner
from orchestrator.report.curves import from_folder
from orchestrator.report.diagnosis import diagnose
from orchestrator.report.faults import Verdict

SMALL = (
    "num_envs=64",
    "algorithm.iterations=24",
    "evaluation.every=24",
    "evaluation.num_rooms=20",
    "policy.hidden_dims=[32,32]",
    "device=cpu",
)

Train = Callable[..., dict[str, Verdict]]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Train with overrides; what the doctor then sees, by code."""

    def run(*overrides: str) -> dict[str, Verdict]:
        config = compose(*SMALL, *overrides)
        folder = tmp_path / "trial"
        spec.write(spec.TrialSpec(study="test", number=0, seed=config.seed, params={}, folder=folder, config=config))
        curves = Curves(folder)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as a job does
        try:
            Runner(config, seed=config.seed, folder=folder, threads=1).train(curves, lambda: False)
        except Diverged:
            pass
        finally:
            torch.set_num_threads(threads)
            curves.close()
        return {verdict.code: verdict for verdict in diagnose(from_folder(folder)).verdicts}

    return run


def warnings(verdicts: dict[str, Verdict]) -> set[str]:
    return {code for code, verdict in verdicts.items() if verdict.level == "warning"}


def test_a_healthy_one_of_that_size(train: Train) -> None:
    # So few samples reach no larger steps than these at a bearable rate.
    assert warnings(train("num_envs=128", "algorithm.iterations=30", "algorithm.desired_kl=0.01")) == set()


def test_learning_rate_far_too_high(train: Train) -> None:
    verdicts = train("algorithm.schedule=fixed", "algorithm.learning_rate=0.03")
    assert verdicts["kl_overshoot"].level == "warning"
    assert verdicts["kl_overshoot"].figure > 0.5


def test_steps_larger_than_the_schedule_can_make(train: Train) -> None:
    verdicts = train("algorithm.desired_kl=1", "algorithm.desired_kl_end=1")
    assert warnings(verdicts) == {"lr_at_ceiling"}


def test_steps_smaller_than_the_schedule_can_make(train: Train) -> None:
    verdicts = train("algorithm.desired_kl=1e-7", "algorithm.desired_kl_end=1e-7")
    assert verdicts["lr_at_floor"].figure > 0.9


def test_entropy_bonus_that_rules(train: Train) -> None:
    verdicts = train("algorithm.entropy_coef=1", "task.observations.goal_polar.enabled=false")
    assert {"entropy_only", "std_explosion"} <= warnings(verdicts)


def test_actions_that_are_all_noise(train: Train) -> None:
    verdicts = train("policy.init_std=3")
    assert "saturation" in warnings(verdicts)
    assert "noise alone" in verdicts["saturation"].advice


def test_actions_without_noise(train: Train) -> None:
    assert "std_collapse" in warnings(train("policy.init_std=0.01"))


def test_goal_missing_from_the_observation(train: Train) -> None:
    verdicts = train("task.observations.goal_polar.enabled=false", "evaluation.every=3", "evaluation.num_rooms=50")
    assert verdicts["plateau"].level == "warning"


def test_a_reward_that_pays_for_standing_still(train: Train) -> None:
    verdicts = train(
        "evaluation.every=5",
        "task.rewards.goal.weight=0",
        "task.rewards.progress.weight=0",
        "task.rewards.stuck.weight=1",
        "task.rewards.timeout.weight=0",
    )
    assert "'stuck' grew most" in verdicts["reward_hacking"].seen


def test_critic_that_does_not_learn(train: Train) -> None:
    assert "value_failure" in warnings(train("algorithm.value_loss_coef=0"))


def test_reward_that_overflows(train: Train) -> None:
    verdicts = train("task.reward_scale=1e38")
    assert verdicts["diverged"].iterations == (1, 1)


def test_ages_not_spread(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NavEnv, "spread_ages", lambda self: None)
    verdicts = train("algorithm.iterations=14")
    assert warnings(verdicts) == {"synchronous_timeouts"}
    assert verdicts["synchronous_timeouts"].iterations == (7, 7)


def test_normaliser_that_never_learns(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    update = PPO.update

    def without_learning(self: PPO) -> dict[str, float]:
        self.actor.obs_normalizer.eval()
        return update(self)

    monkeypatch.setattr(PPO, "update", without_learning)
    assert warnings(train("algorithm.iterations=5")) == {"blind_policy"}


def test_normaliser_that_learns_before_the_epochs(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """And keeps learning: the old policy's log-probabilities were taken of observations normalised otherwise."""
    compute_returns = PPO.compute_returns

    def and_learn(self: PPO, obs: TensorDict) -> None:
        compute_returns(self, obs)
        normaliser, seen = self.actor.obs_normalizer, self.storage.observations.flatten(0, 1)
        normaliser.count.clamp_(max=len(seen))
        self.actor.update_normalization(seen)
        self._inputs["actor"] = self._inputs["critic"] = normaliser(seen["policy"])

    monkeypatch.setattr(PPO, "compute_returns", and_learn)
    verdicts = train("algorithm.iterations=12")
    assert warnings(verdicts) == {"first_epoch_kl"}
