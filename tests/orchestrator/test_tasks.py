"""A second task goes through the same commands as the first: composed, checked, searched and refused alike."""

from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]

SWEEP = ("task=reach", "+sweep=reach_weights", "dry_run=true")


@pytest.fixture
def dry(cli: Cli, tmp_path: Path) -> Cli:
    def run(*arguments: str) -> tuple[int, str, str]:
        own = (f"output_dir={tmp_path / 'sweeps'}", f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}")
        done = cli(*arguments, *own)
        assert list(tmp_path.iterdir()) == [], "nothing was started"
        return done

    return run


def test_a_task_is_chosen_by_name_with_its_own_learning_and_evaluation(dry: Cli) -> None:
    code, out, err = dry("task=reach", "dry_run=true")
    assert (code, err) == (0, "")
    assert "1 training of 100 iterations, 256 rooms (box), evaluated every 20 on 1000 frozen rooms (box)" in out


def test_its_reward_weights_are_searched(dry: Cli) -> None:
    code, out, err = dry(*SWEEP)
    assert (code, err) == (0, "")
    assert "12 trials of 20 iterations" in out
    assert "to maximize Eval/success_rate over" in out
    for term, today in (("goal", "5.0"), ("effort", "-0.001"), ("action_smooth", "0.0")):
        assert any(f"task.rewards.{term}.weight" in line and f"(today {today})" in line for line in out.splitlines())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((*SWEEP, "sweep.objective=Train/mean_reward"), ("Train/mean_reward", "on the very rewards", "Eval/")),
        ((*SWEEP, "sweep.objective=Eval/collision_rate"), ("Eval/collision_rate", "no such metric")),
        (("task=reach", "+task.rewards.distanse={weight: 1.0}"), ("distanse", "did you mean 'distance'?")),
        (("task=reach", "+task.observations.lidar={enabled: true}"), ("task.observations.lidar",)),
        (("task=reach", "policy.obs_groups.critic=[policy,privileged]"), ("policy.obs_groups.critic=privileged",)),
        (("task=reach", "task/targets=box", "task.targets.centre=[0.9,0,0.3]"), ("the arm's reach", "a corner is")),
        (("task=reach", "evaluation.set=dense"), ("evaluation.set=dense", "box, wide")),
    ],
)
def test_mistakes_are_told_in_its_own_terms(dry: Cli, given: tuple[str, ...], told: tuple[str, ...]) -> None:
    code, _, err = dry(*given)
    assert code == 2
    assert len(err.splitlines()) == 1
    for words in told:
        assert words in err
