"""Optuna's samplers and pruners, made from what a sweep says of them by ``_target_``."""

import hashlib
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from hydra.utils import instantiate
from optuna.pruners import BasePruner, NopPruner, WilcoxonPruner
from optuna.samplers import BaseSampler

from orchestrator.config import SweepConfig
from orchestrator.errors import UserError, nearest, shown
from orchestrator.search.space import Space

ALLOWED = ("optuna.samplers.", "optuna.pruners.")
"""What a ``_target_`` in a sweep may name. Nothing else is imported, let alone called."""

# These draw from one sequence, which one seed makes; all others get a seed for each trial.
_SEQUENTIAL = ("QMCSampler", "GridSampler")


def check(sweep: SweepConfig, space: Space) -> None:
    """Raise UserError when sampler or pruner can't be built, or fail at their work: many look at settings only then."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions: list[Any] = [o.direction for o in sweep.objectives.values()] or [sweep.direction]
    sampler, pruner = build_sampler(sweep, 0, 0), build_pruner(sweep)
    study = optuna.create_study(sampler=sampler, pruner=pruner, directions=directions)  # in memory
    for _ in range(2):
        with _refusing(sweep.sampler, "sweep.sampler"):
            trial = study.ask()
            space.suggest(trial, whole=False)
        if sweep.pruner is not None:
            with _refusing(sweep.pruner, "sweep.pruner"):
                trial.report(0.0, step=1)
                trial.should_prune()
        with _refusing(sweep.sampler, "sweep.sampler"):
            study.tell(trial, [0.0] * len(directions))
    if isinstance(pruner, WilcoxonPruner):
        _check_seeds(sweep, pruner)


MOST_SEEDS = 64
"""With so many the least probability that Wilcoxon's test can give is 1e-19."""


def _check_seeds(sweep: SweepConfig, pruner: WilcoxonPruner) -> None:
    """Raise UserError where trials have too few seeds for a pruner that compares them seed by seed: one that came out
    worse with each of them must be told so before the last is trained."""
    study = optuna.create_study(pruner=pruner)
    best, worse = study.ask(), study.ask()
    for seed in range(MOST_SEEDS):
        best.report(0.0, seed)
    study.tell(best, 0.0)
    needed = 1
    for seed in range(MOST_SEEDS):
        worse.report(1.0 + seed, seed)  # ties would make it less sure
        needed = seed + 2
        if worse.should_prune():
            break
    if sweep.seeds_per_trial < needed:
        raise UserError(
            f"sweep.seeds_per_trial={sweep.seeds_per_trial}: expected at least {needed}, or another sweep.pruner: "
            f"{shown(sweep.pruner)} compares trials seed by seed, and could never stop one with fewer"
        )


def build_sampler(sweep: SweepConfig, seed: int, number: int) -> BaseSampler:
    """The sampler for one proposal."""
    name = str(sweep.sampler.get("_target_", "")).rpartition(".")[2]
    own = seed if name in _SEQUENTIAL else derive_seed(seed, number)

    def seeded(cls: Callable[..., Any]) -> dict[str, Any]:
        takes_seed = "seed" in inspect.signature(cls).parameters and "seed" not in sweep.sampler
        return {"seed": own} if takes_seed else {}

    sampler = _build(sweep.sampler, "sweep.sampler", seeded)
    if not isinstance(sampler, BaseSampler):
        raise UserError(f"sweep.sampler._target_={sweep.sampler['_target_']}: expected a sampler of Optuna")
    return sampler


def build_pruner(sweep: SweepConfig) -> BasePruner:
    """The pruner; one that never prunes, where there is none."""
    if sweep.pruner is None:
        return NopPruner()
    pruner = _build(sweep.pruner, "sweep.pruner", lambda _: {})
    if not isinstance(pruner, BasePruner):
        raise UserError(f"sweep.pruner._target_={sweep.pruner['_target_']}: expected a pruner of Optuna")
    return pruner


def derive_seed(seed: int, number: int) -> int:
    """A seed of its own for each trial, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def _build(described: Mapping[str, Any], key: str, extra: Callable[[Callable[..., Any]], dict[str, Any]]) -> Any:
    if not isinstance(described, Mapping) or "_target_" not in described:
        raise UserError(
            f"{key}={shown(described)}: expected a mapping with _target_, a class of optuna.{key.rpartition('.')[2]}s"
        )
    _check_targets(described, key)
    target = described["_target_"]
    try:
        module_name, _, name = target.rpartition(".")
        cls = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        module = optuna.samplers if "sampler" in key else optuna.pruners
        known = [f"{module.__name__}.{name}" for name in module.__all__]
        raise UserError(f"{key}._target_={target}: no such class in Optuna{nearest(target, known)}") from error
    settings = inspect.signature(cls).parameters
    for name, value in described.items():
        if name != "_target_" and name not in settings:
            raise UserError(f"{key}.{name}={shown(value)}: {cls.__name__} has no such setting{nearest(name, settings)}")
    with _refusing(described, key):
        return instantiate(dict(described) | extra(cls), _convert_="all")


@contextmanager
def _refusing(described: Mapping[str, Any], key: str) -> Iterator[None]:
    """Whatever a class of Optuna raises over its settings becomes a UserError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # tells a user nothing
            yield
    except Exception as error:
        name, cause = described["_target_"].rpartition(".")[2], error.__cause__ or error
        first = (str(cause) or type(cause).__name__).splitlines()[0]
        raise UserError(f"{key}={shown(described)}: {name} refuses its settings: {first}") from error


def _check_targets(node: Any, key: str) -> None:
    """Refuse any ``_target_``, however deep, that is not on the allow-list."""
    if isinstance(node, Mapping):
        if "_target_" in node and not str(node["_target_"]).startswith(ALLOWED):
            raise UserError(
                f"{key}._target_={shown(node['_target_'])}: expected a class of optuna.samplers or optuna.pruners"
            )
        for name, value in node.items():
            _check_targets(value, f"{key}.{name}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            _check_targets(value, f"{key}[{index}]")
