"""The search space: config path -> values, in the grammar of ``grammar.py``.

Values are set on the config at paths that exist, never pasted into an override string.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import optuna

from orchestrator.config import Config, from_plain, to_plain, validate
from orchestrator.errors import UserError, nearest, shown
from orchestrator.record.fields import flatten
from orchestrator.search.conditional import Conditional
from orchestrator.search.grammar import Dimension, parse

NOT_SEARCHED = {
    "sweep": "it describes the search itself",
    "confirm": "it describes what follows the search",
    "seed": "what it would find is luck; sweep.seeds_per_trial and confirm.seeds deal with that",
    "launcher": "it changes where a job runs, not what it learns",
    "tracking": "it changes what is recorded, not what is learnt",
    "output_dir": "it changes where files go, not what is learnt",
    "experiment_name": "it changes where files go, not what is learnt",
    "doctor": "it changes nothing that is learnt",
    "dry_run": "it changes nothing that is learnt",
    "require": "it changes nothing that is learnt",
    "evaluation": "it changes what trials are measured by",
    "task.goal_radius": "it changes what trials are measured by",
    "task.episode_length": "it changes what trials are measured by",
    "task.control_dt": "it changes what trials are measured by",
    "task.physics_dt": "it changes what trials are measured by",
    "task.lidar": "it changes what trials are measured by",
}
"""Parts of the config that a search cannot move, with the reason."""


@dataclass(frozen=True)
class Space:
    """All searched values together."""

    dimensions: tuple[Dimension, ...]
    function: Conditional | None = None
    """The conditional part."""

    def suggest(self, trial: optuna.Trial, whole: bool = True) -> dict[str, Any]:
        """Draw a point: config path -> value; without the conditional part unless ``whole``.

        Raises UserError where that part sets what may not be searched, or does otherwise than it should."""
        values = {d.path: d.decode(trial._suggest(d.name, d.distribution)) for d in self.dimensions}
        if whole and self.function is not None:
            further = self.function(trial, values)
            for path in further:
                why = _why_not(path)
                if why is not None:
                    raise UserError(f"{self.function.key} sets {path}, which cannot be searched: {why}")
            values.update(further)
        return values

    def encode(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """A point as Optuna is told of it: parameter name -> nearest value that it could have drawn."""
        return {d.name: d.nearest(point[d.path]) for d in self.dimensions if d.path in point}

    def today(self, config: Config) -> dict[str, Any]:
        """The values that the config holds now: the baseline's point."""
        leaves = dict(flatten(to_plain(config)))
        return {d.path: leaves[d.path] for d in self.dimensions}

    @property
    def moves_rewards(self) -> bool:
        """Whether what a trial is paid for may change. A function may set anything, so it counts."""
        return self.function is not None or any(
            d.path.startswith("task.rewards.") or d.path == "task.reward_scale" for d in self.dimensions
        )


def build(config: Config) -> Space:
    """The space of ``config.sweep``, checked: every path exists, and every end of it is a config that can be run.

    Raises UserError.
    """
    sweep = config.sweep
    assert sweep is not None
    leaves = dict(flatten(to_plain(config)))
    dimensions = []
    for path, text in flatten(sweep.params):
        if path not in leaves:
            known = [leaf for leaf in leaves if _why_not(leaf) is None]
            raise UserError(f"sweep.params.{path}: the config has no such value{nearest(path, known)}")
        if text is None:  # taken out of the search: today's value is every trial's
            continue
        why = _why_not(path)
        if why is not None:
            raise UserError(f"sweep.params.{path}: cannot be searched: {why}")
        dimensions.append(parse(path, text))
    space = Space(tuple(dimensions), Conditional(sweep.space) if sweep.space else None)
    if not space.dimensions and space.function is None:
        raise UserError(f"sweep.params={shown(sweep.params)}: expected at least one config path with its values")
    _probe(config, space)
    if space.function is not None:
        _probe_function(config, space, space.function)
    for index, point in enumerate(sweep.enqueue):
        _check_point(config, space, point, f"sweep.enqueue[{index}]")
    return space


def _why_not(path: str) -> str | None:
    """Why a search cannot move what stands at a path, or all that stands below it."""
    within = (why for root, why in NOT_SEARCHED.items() if f"{path}.".startswith(f"{root}."))
    around = (f"{root} is part of it: {why}" for root, why in NOT_SEARCHED.items() if root.startswith(f"{path}."))
    return next(within, None) or next(around, None)


def _probe(config: Config, space: Space) -> None:
    probes = [(d, d.probes()) for d in space.dimensions]
    for round_ in range(max((len(values) for _, values in probes), default=0)):
        drawn = {d.path: values[round_ % len(values)] for d, values in probes}
        try:
            apply(config, drawn)
        except UserError as error:
            for d in space.dimensions:
                if str(error).startswith(d.path):
                    hint = "; use int(interval(…)) for whole numbers" if "whole number" in str(error) else ""
                    raise UserError(f"sweep.params.{d.path}={d.text} allows {error}{hint}") from error
            raise UserError(f"sweep.params allows what cannot be run: {error}") from error


def _probe_function(config: Config, space: Space, function: Conditional) -> None:
    """Call it once, on a trial of no study, for its mistakes to be told before anything starts."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(config.seed))
    values = space.suggest(study.ask())
    try:
        apply(config, values)
    except UserError as error:
        if not str(error).startswith(tuple(d.path for d in space.dimensions)):
            raise UserError(f"{function.key} allows {error}") from error


def _check_point(config: Config, space: Space, point: Mapping[str, Any], key: str) -> None:
    by_path = {d.path: d for d in space.dimensions}
    for path, value in flatten(point):
        if path not in by_path:
            raise UserError(f"{key}: {path} is not searched{nearest(path, by_path)}")
        if not by_path[path].contains(value):
            raise UserError(f"{key}: {path}={value} is outside {by_path[path].text}")
    apply(config, dict(flatten(point)))


def apply(config: Config, values: Mapping[str, Any]) -> Config:
    """A copy of the config with these values set, checked. Raises UserError for an unknown path or impossible value."""
    plain = to_plain(replace(config, sweep=None))
    for path, value in values.items():
        node = plain
        *parents, name = path.split(".")
        for parent in parents:
            node = node[parent] if isinstance(node.get(parent), dict) else {}
        if name not in node:
            known = [leaf for leaf, _ in flatten(to_plain(config)) if _why_not(leaf) is None]
            raise UserError(f"{path}: the config has no such value{nearest(path, known)}")
        node[name] = value
    changed = from_plain(plain)
    validate(changed)
    return changed
