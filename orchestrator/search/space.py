"""The search space: config path -> values, in the override grammar that Hydra's Optuna sweeper made known.

===================================  ==================================================================
``interval(0.5, 8)``                 a number, evenly
``tag(log, interval(1e-5, 1e-2))``   a number, evenly on a logarithmic scale
``int(interval(2, 8))``              a whole number, both ends included; ``tag(log, int(interval(1, 64)))`` too
``range(1, 9, 2)``                   steps, both ends included (as the sweeper does, unlike Python's range)
``choice(elu, tanh)``, ``elu, tanh``  one of these; lists are fine: ``choice([64,64],[128,128])``
``logit(interval(0.9, 0.999))``      a share near 1, such as gamma or lambda: evenly in log(x / (1 - x))
``pow2(16, 128)``                    a power of two, both ends included
===================================  ==================================================================

Hydra's own parser reads it. Values are set on the config at paths that exist, never pasted into an override string.
"""

import importlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep
from hydra.errors import HydraException
from omegaconf import OmegaConf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from orchestrator.config import Config, from_plain, to_plain, validate
from orchestrator.errors import UserError, nearest
from orchestrator.record.fields import flatten

FORMS = "interval(a, b), int(interval(a, b)), range(a, b), choice(…), tag(log, …), logit(interval(a, b)) or pow2(a, b)"

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


@dataclass
class _Logit(IntervalSweep):
    """Parsed ``logit(…)``; bounds as the user wrote them."""


@dataclass
class _Pow2(IntervalSweep):
    """Parsed ``pow2(…)``; bounds as the user wrote them."""


def _logit(sweep: IntervalSweep) -> _Logit:
    return _Logit(start=sweep.start, end=sweep.end, tags=sweep.tags)


def _pow2(start: int, end: int) -> _Pow2:
    return _Pow2(start=start, end=end)


def _parser() -> OverridesParser:
    functions = create_functions()
    functions.register(name="logit", func=_logit)
    functions.register(name="pow2", func=_pow2)
    return OverridesParser(functions=functions)


@dataclass(frozen=True)
class Dimension:
    """One searched value: a config path, and how it is drawn."""

    path: str
    """Of the config value."""
    text: str
    """As the user wrote it."""
    name: str
    """In Optuna. A transformed value is named with its transform, since that is what Optuna's pages then show."""
    distribution: BaseDistribution
    """What Optuna draws from."""
    decode: Callable[[Any], Any] = field(default=lambda drawn: drawn, repr=False)
    """Drawn -> config value."""
    encode: Callable[[Any], Any] = field(default=lambda value: value, repr=False)
    """Config value -> drawn."""

    def nearest(self, value: Any) -> Any:
        """What Optuna is told of a value from outside: the nearest that it could have drawn itself."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            drawn = self.encode(value)
            return drawn if drawn in d.choices else d.choices[0]
        assert isinstance(d, FloatDistribution | IntDistribution)
        try:
            drawn = self.encode(value)
        except (ValueError, TypeError):  # no such thing as the logarithm of this value
            return d.low
        if d.step is not None and not d.log:
            drawn = d.low + round((drawn - d.low) / d.step) * d.step
        drawn = min(max(drawn, d.low), d.high)
        return round(drawn) if isinstance(d, IntDistribution) else float(drawn)

    def contains(self, value: Any) -> bool:
        """Whether a config value could have been drawn."""
        try:
            told = self.decode(self.nearest(value))
        except (ValueError, TypeError):
            return False
        if isinstance(value, bool) or not isinstance(value, int | float) or isinstance(told, str):
            return bool(told == value)
        return math.isclose(told, value, rel_tol=1e-9, abs_tol=1e-12)

    def probes(self) -> list[Any]:
        """Config values by which to tell whether the config takes what can be drawn: the ends, and one between."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return [self.decode(choice) for choice in d.choices]
        assert isinstance(d, FloatDistribution | IntDistribution)
        middle: float = (d.low + d.high) / 2 if isinstance(d, FloatDistribution) else (d.low + d.high) // 2
        return [self.decode(value) for value in (d.low, d.high, middle)]


def parse(path: str, text: Any) -> Dimension:
    """Read one line of a space. Raises UserError naming path and text."""

    def wrong(expected: str) -> UserError:
        return UserError(f"sweep.params.{path}={text}: {expected}")

    if not isinstance(text, str):
        raise wrong(f"expected {FORMS}")
    try:
        sweep = _parser().parse_override(f"{path}={text}").value()
    except (HydraException, TypeError, ValueError) as error:
        detail = str(error).strip().splitlines()[-1 if error.__cause__ else 0].removeprefix("Error while evaluating ")
        raise wrong(f"expected {FORMS} ({detail})") from error
    if isinstance(sweep, ChoiceSweep):
        return _choice(path, text, list(sweep.list), wrong)
    if isinstance(sweep, RangeSweep):
        return _range(path, text, sweep, wrong)
    if isinstance(sweep, IntervalSweep):
        return _interval(path, text, sweep, wrong)
    raise wrong(f"a single value is no search; expected {FORMS}")


def _choice(path: str, text: str, values: list[Any], wrong: Callable[[str], UserError]) -> Dimension:
    plain: list[Any] = [OmegaConf.to_object(v) if OmegaConf.is_config(v) else getattr(v, "text", v) for v in values]
    if not plain:
        raise wrong("expected at least one choice")
    scalar = all(value is None or isinstance(value, bool | int | float | str) for value in plain)
    if scalar:
        return Dimension(path, text, path, CategoricalDistribution(plain))
    # Optuna stores scalars only: a list goes by its JSON text.
    texts = CategoricalDistribution([json.dumps(value) for value in plain])
    return Dimension(path, text, path, texts, decode=json.loads, encode=json.dumps)


def _range(path: str, text: str, sweep: RangeSweep, wrong: Callable[[str], UserError]) -> Dimension:
    assert sweep.start is not None
    assert sweep.stop is not None
    if sweep.shuffle:
        return _choice(path, text, list(sweep.range()), wrong)
    low, high, step = sweep.start, sweep.stop, sweep.step
    if not all(math.isfinite(x) for x in (low, high, step)) or step <= 0:
        raise wrong("expected a step above 0 and finite bounds")
    if low >= high:
        raise wrong(f"the lower bound {low:g} must be below the upper bound {high:g}")
    if all(isinstance(x, int) for x in (low, high, step)):
        return Dimension(
            path, text, path, IntDistribution(int(low), int(high) - int(high - low) % int(step), step=int(step))
        )
    # In decimals, as written: 0.1 + 2 * 0.1 is not 0.3 in floats, and Optuna minds.
    start, width = Decimal(str(low)), Decimal(str(step))
    steps = (Decimal(str(high)) - start) // width
    return Dimension(path, text, path, FloatDistribution(float(start), float(start + steps * width), step=float(width)))


def _interval(path: str, text: str, sweep: IntervalSweep, wrong: Callable[[str], UserError]) -> Dimension:
    low, high = sweep.start, sweep.end
    assert low is not None
    assert high is not None
    unknown = set(sweep.tags) - {"log", "int"}
    if unknown:
        raise wrong(f"unknown tag '{min(unknown)}'{nearest(min(unknown), ('log', 'int'))}")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise wrong("expected finite bounds")
    if low >= high:
        raise wrong(f"the lower bound {low:g} must be below the upper bound {high:g}")
    if isinstance(sweep, _Pow2):
        if low < 1 or any(math.log2(x) % 1 for x in (low, high)):
            raise wrong("expected two powers of two, such as pow2(16, 128)")
        exponents = IntDistribution(int(math.log2(low)), int(math.log2(high)))
        return Dimension(path, text, f"log2({path})", exponents, decode=lambda e: 2 ** int(e), encode=math.log2)
    if isinstance(sweep, _Logit):
        if not 0 < low < high < 1:
            raise wrong("expected bounds between 0 and 1, both excluded: the logit is infinite there")
        return Dimension(
            path, text, f"logit({path})", FloatDistribution(_to_logit(low), _to_logit(high)), _from_logit, _to_logit
        )
    log = "log" in sweep.tags
    if log and low <= 0:
        raise wrong(f"a logarithmic scale has no {low:g}; expected a lower bound above 0")
    if "int" in sweep.tags or (isinstance(low, int) and isinstance(high, int)):
        return Dimension(path, text, path, IntDistribution(int(low), int(high), log=log))
    return Dimension(path, text, path, FloatDistribution(low, high, log=log))


def _to_logit(share: float) -> float:
    if not 0 < share < 1:
        return math.copysign(math.inf, share - 0.5)
    return math.log(share / (1 - share))


def _from_logit(value: float) -> float:
    return 1 / (1 + math.exp(-value))


SpaceFunction = Callable[[optuna.Trial, dict[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Space:
    """All searched values together."""

    dimensions: tuple[Dimension, ...]
    function: SpaceFunction | None = None
    """The conditional part: sees the trial and what was drawn so far, returns further {config path: value}."""

    def suggest(self, trial: optuna.Trial, whole: bool = True) -> dict[str, Any]:
        """Draw a point: config path -> value; without the conditional part unless ``whole``."""
        values = {d.path: d.decode(trial._suggest(d.name, d.distribution)) for d in self.dimensions}
        if whole and self.function is not None:
            values.update(self.function(trial, dict(values)))
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
        why = _why_not(path)
        if why is not None:
            raise UserError(f"sweep.params.{path}: cannot be searched: {why}")
        dimensions.append(parse(path, text))
    space = Space(tuple(dimensions), _load_function(sweep.space) if sweep.space else None)
    if not space.dimensions and space.function is None:
        raise UserError("sweep.params={}: expected at least one config path with its values")
    _probe(config, space)
    for index, point in enumerate(sweep.enqueue):
        _check_point(config, space, point, f"sweep.enqueue[{index}]")
    return space


def _why_not(path: str) -> str | None:
    return next((why for root, why in NOT_SEARCHED.items() if path == root or path.startswith(root + ".")), None)


def _load_function(name: str) -> SpaceFunction:
    module, _, attribute = name.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"sweep.space={name}: expected pkg.mod.function(trial, params) ({error})") from error
    if not callable(function):
        raise UserError(f"sweep.space={name}: expected pkg.mod.function(trial, params)")
    return function


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
            raise UserError(f"{path}: the config has no such value")
        node[name] = value
    changed = from_plain(plain)
    validate(changed)
    return changed
