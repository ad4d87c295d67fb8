"""How a searched value is drawn, in the override grammar that Hydra's Optuna sweeper made known.

===================================  ==================================================================
``interval(0.5, 8)``                 a number, evenly
``tag(log, interval(1e-5, 1e-2))``   a number, evenly on a logarithmic scale
``int(interval(2, 8))``              a whole number, both ends included; ``tag(log, int(interval(1, 64)))`` too
``range(1, 9, 2)``                   steps, both ends included (as the sweeper does, unlike Python's range)
``choice(elu, tanh)``, ``elu, tanh``  one of these; lists are fine: ``choice([64,64],[128,128])``
``logit(interval(0.9, 0.999))``      a share near 1, such as gamma or lambda: evenly in log(x / (1 - x))
``pow2(16, 128)``                    a power of two, both ends included
===================================  ==================================================================

Hydra's own parser reads it.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep
from hydra.errors import HydraException
from omegaconf import OmegaConf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from orchestrator.errors import UserError, nearest

FORMS = "interval(a, b), int(interval(a, b)), range(a, b), choice(…), tag(log, …), logit(interval(a, b)) or pow2(a, b)"


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
        if isinstance(value, bool) or not all(isinstance(v, int | float) for v in (value, told)):
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
