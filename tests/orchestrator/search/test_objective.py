"""What may judge a trial."""

import math

import harness
import pytest

from orchestrator.errors import UserError
from orchestrator.record.wal import Record
from orchestrator.search.objective import Constraint, Judge, Objective, Score, check, mean_score, summarise
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


def log(*evaluations: dict[str, float]) -> list[Record]:
    """With an iteration between two evaluations."""
    records = []
    for i, metrics in enumerate(evaluations):
        records += [Record(2 * i + 1, 0.0, {"Train/mean_reward": 1.0}), Record(2 * i + 2, 0.0, metrics)]
    return records


@pytest.fixture
def pareto(tmp_path) -> Judge:
    return Judge(harness.configure(tmp_path, "+sweep=pareto", "sweep.objective_window=2"))


def test_an_undefined_metric_counts_as_the_worst(pareto: Judge) -> None:
    reached = {
        "Eval/success_rate": 0.5,
        "Eval/time_to_goal": 6.0,
        "Eval/action_change": 0.1,
        "Eval/collision_rate": 0.1,
    }
    never = {"Eval/success_rate": 0.0, "Eval/action_change": 0.1, "Eval/collision_rate": 1.0}
    assert pareto.score(log(never, reached, reached)) == Score((0.5, 6.0, 0.1), (0.1,))
    # The last two evaluations count, also the one without a success: not an older one in its place.
    assert pareto.score(log(reached, reached, never)) == Score((0.25, (6.0 + 20.0) / 2, 0.1), (0.55,))


def test_one_objective_that_was_never_measured_makes_no_score(tmp_path) -> None:
    judge = Judge(harness.configure(tmp_path, "+sweep=ppo", "sweep.objective=Eval/time_to_goal"))
    assert judge.score(log({"Eval/success_rate": 0.0})) is None
    assert judge.score(log({"Eval/success_rate": 0.1, "Eval/time_to_goal": 5.0})) == Score((5.0,))


def test_an_objective_is_not_what_it_was_before_it_became_undefined(tmp_path) -> None:
    overrides = ("+sweep=ppo", "sweep.objective=Eval/time_to_goal", "sweep.direction=minimize")
    reached, never = {"Eval/success_rate": 0.9, "Eval/time_to_goal": 4.0}, {"Eval/success_rate": 0.0}
    collapsed = log(reached, reached, never, reached, reached)
    judge = Judge(harness.configure(tmp_path, *overrides))
    assert judge.score(collapsed) is None
    assert judge.why_no_score(collapsed) == (
        "Eval/time_to_goal is undefined in the last evaluations: nothing succeeded; "
        "sweep.worst says what that counts as"
    )
    assert judge.why_no_score([]) == "Eval/time_to_goal was never measured"
    assert judge.score([*collapsed, *log(reached)]) == Score((4.0,))  # of the last three
    judge = Judge(harness.configure(tmp_path, *overrides, "sweep.worst=19"))
    assert judge.score(collapsed) == Score((9.0,))
    assert [judge.judges_by(record) for record in log(never)] == [False, True]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ["sweep.objective=Eval/collision_rate"],
            "sweep.objective=Eval/collision_rate: less is better; expected sweep.direction=minimize, not maximize",
        ),
        (["sweep.direction=minimize"], "more is better; expected sweep.direction=maximize, not minimize"),
        (
            [
                "sweep.objective=null",
                "+sweep.objectives={Eval/spl: {direction: minimize, worst: 0},"
                " Eval/sct: {direction: maximize, worst: 0}}",
                "sweep.pruner=null",
                "confirm.top_k=0",
            ],
            "sweep.objectives.Eval/spl: more is better; expected sweep.objectives.Eval/spl.direction=maximize",
        ),
    ],
)
def test_nobody_searches_for_the_worst(tmp_path, overrides: list[str], told: str) -> None:
    with pytest.raises(UserError) as refused:
        check(harness.configure(tmp_path, "+sweep=ppo", *overrides), False)
    assert told in str(refused.value)


def test_several_trainings_are_a_mean_and_a_spread() -> None:
    mean, spread = mean_score([Score((0.5, 3.0), (0.1,)), Score((0.7, 5.0), (0.2,)), Score((0.9, 4.0), (0.3,))])
    assert mean.values == pytest.approx((0.7, 4.0))
    assert mean.bounded == pytest.approx((0.2,))
    assert spread == pytest.approx((0.2, 1.0))
    assert mean_score([Score((0.5,))])[1] == (0.0,)


def test_constraints_are_bounds_and_what_is_undefined_breaks_them(tmp_path) -> None:
    both = Constraint("Eval/time_to_goal", 1.0, 6.0)
    assert [both.violation(value) for value in (0.5, 1.0, 4.0, 6.5)] == pytest.approx([0.5, 0.0, -2.0, 0.5])
    assert both.violation(math.nan) == math.inf
    assert str(both) == "Eval/time_to_goal >= 1 and Eval/time_to_goal <= 6"
    judge = Judge(harness.configure(tmp_path, "+sweep=ppo", "+sweep.constraints={Eval/collision_rate: {max: 0.05}}"))
    assert judge.broken(Score((0.9,), (0.05,))) == []
    assert judge.broken(Score((0.9,), (0.07,))) == ["Eval/collision_rate <= 0.05 (0.070, by 0.020)"]
    assert judge.broken(Score((0.9,), (math.nan,))) == ["Eval/collision_rate <= 0.05 (undefined)"]


def test_nothing_is_better_than_nothing_and_nan_than_none() -> None:
    most, least = Objective("m", "maximize", None), Objective("m", "minimize", None)
    assert most.better(0.5, None)
    assert most.better(0.5, 0.4)
    assert not most.better(0.5, 0.5)
    assert least.better(0.4, 0.5)
    assert not most.better(math.nan, None)
