"""Samplers and pruners, as a sweep describes them."""

from dataclasses import replace
from typing import Any

import harness
import optuna
import pytest

from orchestrator.config import Config, SweepConfig
from orchestrator.errors import UserError
from orchestrator.search import samplers
from orchestrator.search.space import Space, build


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return harness.configure(tmp_path_factory.mktemp("out"), *harness.SWEEP)


@pytest.fixture(scope="module")
def space(config: Config) -> Space:
    return build(config)


@pytest.fixture
def sweep(config: Config) -> SweepConfig:
    assert config.sweep is not None
    return config.sweep


@pytest.mark.parametrize(("threshold", "needed"), [(0.1, 5), (0.2, 4), (0.3, 3)])
def test_a_pruner_that_compares_seeds_needs_enough_of_them(
    sweep: SweepConfig, space: Space, threshold: float, needed: int
) -> None:
    """That n seeds all came out worse has by chance a probability of 2^-n, and the last one saves nothing."""
    pruner = {"_target_": "optuna.pruners.WilcoxonPruner", "p_threshold": threshold}
    samplers.check(replace(sweep, pruner=pruner, seeds_per_trial=needed), space)
    told = f"^sweep.seeds_per_trial={needed - 1}: expected at least {needed}, or another sweep.pruner"
    with pytest.raises(UserError, match=told):
        samplers.check(replace(sweep, pruner=pruner, seeds_per_trial=needed - 1), space)


def test_seeds_differ_by_trial_and_not_by_process() -> None:
    seeds = {samplers.derive_seed(seed, number) for seed in (1, 2) for number in range(100)}
    assert len(seeds) == 200
    assert samplers.derive_seed(1, 0) == 416735690


@pytest.mark.parametrize("name", ["TPESampler", "RandomSampler", "GPSampler", "QMCSampler", "NSGAIISampler"])
def test_each_proposal_has_a_sampler_of_its_own(sweep: SweepConfig, name: str) -> None:
    described = replace(sweep, sampler={"_target_": f"optuna.samplers.{name}"})
    assert isinstance(samplers.build_sampler(described, 1, 1), getattr(optuna.samplers, name))


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("n_startup_trials", "abc", "n_startup_trials: abc}: TPESampler refuses its settings"),  # when it first draws
        ("n_startup_trials", None, "n_startup_trials: null}: TPESampler refuses its settings"),
        ("n_startup_trial", 3, "sweep.sampler.n_startup_trial=3: TPESampler has no such setting; did you mean"),
        (
            "_target_",
            "optuna.samplers.BruteForceSampler",
            "BruteForceSampler refuses its settings",
        ),  # numbers, no steps
        ("_target_", "optuna.pruners.NopPruner", "expected a sampler"),
        ("_target_", 3, "sweep.sampler._target_=3: expected a class of optuna.samplers"),
    ],
)
def test_a_sampler_that_could_not_work_is_refused(
    sweep: SweepConfig, space: Space, setting: str, value: Any, told: str
) -> None:
    kept = {} if setting == "_target_" else sweep.sampler
    with pytest.raises(UserError) as refused:
        samplers.check(replace(sweep, sampler={**kept, setting: value}), space)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("described", "told"),
    [
        (
            {"_target_": "optuna.pruners.PercentilePruner", "percentile": "abc"},
            "percentile: abc}: PercentilePruner",
        ),
        ({"_target_": "optuna.pruners.PercentilePruner", "percentil": 3}, "did you mean 'percentile'?"),
        (
            {"percentile": 3},
            "sweep.pruner={percentile: 3}: expected a mapping with _target_, a class of",
        ),
        ({"_target_": "optuna.samplers.TPESampler"}, "expected a pruner"),
    ],
)
def test_a_pruner_that_could_not_work_is_refused(
    sweep: SweepConfig, space: Space, described: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError) as refused:
        samplers.check(replace(sweep, pruner=described), space)
    assert told in str(refused.value)


def test_what_a_conditional_space_would_run_is_not_run(sweep: SweepConfig, space: Space) -> None:
    def function(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("called before anything has started")

    samplers.check(sweep, replace(space, function=function))
