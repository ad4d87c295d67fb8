"""What may judge a trial."""

import harness
import pytest

from orchestrator.errors import UserError
from orchestrator.search.objective import check, summarise
from orchestrator.search.space import build


@pytest.mark.parametrize(
    "metric", ["Train/mean_reward", "Episode_Reward/goal", "Episode_Termination/success", "Loss/value"]
)
def test_a_sweep_of_rewards_is_judged_by_evaluations_alone(tmp_path, metric: str) -> None:
    config = harness.configure(tmp_path, "+sweep=reward_weights", f"sweep.objective={metric}")
    with pytest.raises(UserError, match="on the very rewards that this sweep changes"):
        check(config, build(config).moves_rewards)


def test_a_function_may_move_rewards_so_it_counts(tmp_path) -> None:
    config = harness.configure(
        tmp_path, "+sweep=ppo", "sweep.space=fake_space.impossible_for_trial_two", "sweep.objective=Train/mean_reward"
    )
    assert build(config).moves_rewards


def test_a_sweep_of_ppo_may_be_judged_by_the_return(tmp_path) -> None:
    config = harness.configure(tmp_path, "+sweep=ppo", "sweep.objective=Train/mean_reward")
    check(config, build(config).moves_rewards)


@pytest.mark.parametrize("metric", ["Eval/spl", "Eval/worst_decile_success", "Eval_open/success_rate"])
def test_any_metric_of_an_evaluation_will_do(tmp_path, metric: str) -> None:
    config = harness.configure(
        tmp_path, "+sweep=reward_weights", f"sweep.objective={metric}", "evaluation.further_sets=[open]"
    )
    check(config, True)


@pytest.mark.parametrize("metric", ["Eval/sucess_rate", "Eval_open/success_rate", "Eval", "success_rate"])
def test_a_metric_that_nobody_measures_is_refused(tmp_path, metric: str) -> None:
    config = harness.configure(tmp_path, "+sweep=ppo", f"sweep.objective={metric}")
    with pytest.raises(UserError, match=f"sweep.objective={metric}"):
        check(config, False)


def test_the_objective_is_the_mean_of_the_last_few() -> None:
    assert summarise([0.1, 0.2, 0.6, 0.7], 3) == pytest.approx(0.5)
    assert summarise([0.4], 3) == 0.4
    assert summarise([], 3) is None
