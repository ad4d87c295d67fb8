"""Search spaces over the config."""

from dataclasses import replace
from pathlib import Path

import fake_space
import harness
import optuna
import pytest

from orchestrator.config import Config
from orchestrator.errors import UserError
from orchestrator.search.grammar import Dimension
from orchestrator.search.space import apply, build


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return harness.configure(tmp_path_factory.mktemp("out"), *harness.SWEEP)


def dimension(config: Config, path: str) -> Dimension:
    return next(d for d in build(config).dimensions if d.path == path)


def test_today_is_the_baseline(config: Config) -> None:
    today = build(config).today(config)
    assert today["task.rewards.goal.weight"] == 15.0
    assert dimension(config, "task.rewards.goal.weight").contains(15.0)
    assert all(d.contains(today[d.path]) for d in build(config).dimensions)


def test_every_default_sweep_has_the_baseline_inside(tmp_path) -> None:
    for name in ("reward_weights", "ppo", "pareto", "reach_weights"):
        config = harness.configure(tmp_path, f"+sweep={name}", "task=reach" if name == "reach_weights" else "task=nav")
        space = build(config)
        today = space.today(config)
        assert [d.path for d in space.dimensions if not d.contains(today[d.path])] == []


def test_null_takes_a_path_out_of_the_search(tmp_path) -> None:
    progress = "task.rewards.progress.weight"
    config = harness.configure(tmp_path, *harness.SWEEP, f"{progress}=0", f"+sweep.params={{{progress}: null}}")
    space = build(config)
    assert len(space.dimensions) == 9
    assert progress not in {d.path for d in space.dimensions}
    assert apply(config, space.today(config)).task.rewards["progress"].weight == 0.0
    with pytest.raises(UserError, match=r"sweep\.params\.task\.rewards\.progres\.weight: the config has no such value"):
        build(replace(config, sweep=replace(config.sweep, params={"task.rewards.progres.weight": None})))
    with pytest.raises(UserError, match=r"sweep\.params=\{algorithm.gamma: null\}: expected at least one config path"):
        build(replace(config, sweep=replace(config.sweep, params={"algorithm.gamma": None})))


def test_no_trial_of_the_default_sweep_of_ppo_speeds_up_towards_its_end(tmp_path) -> None:
    config = harness.configure(tmp_path, "+sweep=ppo")
    start, end = (dimension(config, f"algorithm.{name}").distribution for name in ("desired_kl", "desired_kl_end"))
    assert end.high <= start.low


def test_values_are_set_typed_and_checked(config: Config) -> None:
    changed = apply(
        config, {"algorithm.num_learning_epochs": 3, "policy.hidden_dims": [8], "task.rewards.goal.weight": 2}
    )
    assert changed.algorithm.num_learning_epochs == 3
    assert changed.policy.hidden_dims == [8]
    assert changed.task.rewards["goal"].weight == 2.0
    assert changed.sweep is None
    assert config.task.rewards["goal"].weight == 15.0
    for values in (
        {"algorithm.gama": 1.0},
        {"algorithm.gamma": 2.0},
        {"algorithm.gamma": "x"},
        {"task.nothing.at.all": 1},
    ):
        with pytest.raises(UserError):
            apply(config, values)


def test_suggest_returns_config_values(config: Config) -> None:
    config = harness.configure("/nonexistent", "+sweep=ppo")  # type: ignore[arg-type]
    space = build(config)
    study = optuna.create_study()
    for _ in range(5):
        values = space.suggest(study.ask())
        assert values["algorithm.num_mini_batches"] in (2, 4, 8)
        assert 0.95 <= values["algorithm.gamma"] <= 0.998
        assert values["policy.hidden_dims"] in ([64, 64], [128, 128], [256, 256])
        apply(config, values)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fake_space.an_easier_goal", "sets task.goal_radius, which cannot be searched: it changes what trials are"),
        ("fake_space.a_whole_part", "sets task, which cannot be searched: task.goal_radius is part of it"),
        ("fake_space.a_list", "returned [algorithm.gamma]: expected {config path: value}"),
        ("fake_space.a_tensor", "sets algorithm.gamma to a numpy.float32: expected a number"),
        ("fake_space.a_typo", "allows algorithm.gama: the config has no such value; did you mean 'algorithm.gamma'?"),
        ("fake_space.too_much", "allows algorithm.gamma=7."),
        ("fake_space.broken", f"raised ValueError: boom ({Path(fake_space.__file__)}:"),
        ("fake_space.nothing", "expected pkg.mod.function(trial, params) (AttributeError: "),
        ("os.system", "expected pkg.mod.function(trial, params) (TypeError: "),
        ("os.sep", "expected pkg.mod.function(trial, params) (TypeError: "),
        ("function", "expected pkg.mod.function(trial, params) (ValueError: "),
    ],
)
def test_a_function_that_does_what_it_may_not_is_refused_before_anything_starts(tmp_path, name: str, told: str) -> None:
    with pytest.raises(UserError) as refused:
        build(harness.configure(tmp_path, *harness.SWEEP, f"sweep.space={name}"))
    assert str(refused.value).startswith(f"sweep.space={name}")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
