"""The registries: a term is a function, and the decorator above it is all that is needed to add it.

Where an observation comes from is part of its function's signature: a DEPLOYABLE term is handed what a real robot
senses and nothing else, so it cannot peek at the truth whatever the config says.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from navtask.errors import ConfigError, TermError
from navtask.interface import Measured

Function = Callable[..., torch.Tensor]

Bounds = Mapping[str, tuple[float, float]]
"""Parameter -> least and greatest value that makes sense."""

Width = int | Callable[[Any], int]
"""Number of values, or a function of the task's config that tells it before the first step."""


@dataclass(frozen=True, kw_only=True)
class ObservationTerm:
    """A registered observation term: ``function(sensed[, truth], **params) -> (N, width)``, of order one."""

    name: str
    group: str
    """``policy`` (DEPLOYABLE) or ``privileged`` (SIM_ONLY)."""
    width: Width
    function: Function
    bounds: Bounds
    mirror: tuple[int, ...] | str
    """What a left-right reflection of the world does to the values: a sign for each, or ``beams``: the values belong to
    directions evenly over 360 degrees, the first of them forward."""
    measured: Callable[[Any], Measured] | None = None
    """Of the task's config: what on a robot the values are made of, and how."""

    def width_for(self, config: Any) -> int:
        """Width of this term under a task config."""
        return self.width(config) if callable(self.width) else self.width

    def measured_for(self, config: Any) -> Measured:
        """What the values are made of; where nothing was declared, of themselves."""
        if self.measured is not None:
            return self.measured(config)
        return Measured(input=self.name, unit="1", meaning=(self.function.__doc__ or self.name).strip().splitlines()[0])

    def mirror_map(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(index, sign), each (width,): the mirrored value ``i`` is ``value[index[i]] * sign[i]``."""
        if self.mirror == "beams":
            # Direction i counter-clockwise becomes direction i clockwise: forward stays, the rest is reversed.
            return (-torch.arange(width)) % width, torch.ones(width)
        if len(self.mirror) != width:
            raise ValueError(f"observation term '{self.name}' is {width} wide but mirrors {len(self.mirror)} values")
        return torch.arange(width), torch.tensor([float(sign) for sign in self.mirror])


@dataclass(frozen=True, kw_only=True)
class RewardTerm:
    """A registered reward term: ``function(context, **params) -> (N,)``."""

    name: str
    function: Function
    bounds: Bounds
    trail: str | None
    """Name of the parameter that tells how many steps of the robot's trail the term looks back on."""

    def default(self, parameter: str) -> Any:
        """What a parameter is when nothing is said of it."""
        return inspect.signature(self.function).parameters[parameter].default


def evaluate(kind: str, name: str, function: Function, shape: tuple[int, ...], *sources: Any) -> torch.Tensor:
    """``function(*sources)`` of a term. Raises TermError when it raises, or returns anything but ``shape``."""
    try:
        value = function(*sources)
    except Exception as error:
        raise TermError.raised(kind, name, error) from error
    if not isinstance(value, torch.Tensor) or value.shape != shape:
        returned = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise TermError(kind, name, f"returned {returned}, not {shape}")
    return value


Term = TypeVar("Term", ObservationTerm, RewardTerm)


class Registry(Mapping[str, Term], Generic[Term]):
    """Terms by name. ``get`` refuses an unknown name, naming the key that asked and the names that exist."""

    def __init__(self, what: str, module: str):
        self._what = what
        self._module = module
        self._terms: dict[str, Term] = {}

    def _filled(self) -> dict[str, Term]:
        __import__(self._module)  # the built-in terms register themselves on import
        return self._terms

    def add(self, term: Term) -> None:
        """Register a term; a name can be taken once."""
        if term.name in self._terms:
            raise ValueError(f"{self._what} '{term.name}' is registered already")
        self._terms[term.name] = term

    def get(self, name: str, key: str = "") -> Term:  # type: ignore[override]
        """The term of that name; ConfigError when there is none."""
        try:
            return self._filled()[name]
        except KeyError:
            raise ConfigError(f"{key}.{name}".strip("."), name, f"a registered {self._what}", self._terms) from None

    def __getitem__(self, name: str) -> Term:
        return self._filled()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._filled())

    def __len__(self) -> int:
        return len(self._filled())


class Terms:
    """The registries of one task, and the decorators that fill them.

    ``package`` is the task's; its modules ``observations`` and ``rewards`` are imported when a term is first asked for.
    """

    def __init__(self, package: str):
        self.observations: Registry[ObservationTerm] = Registry("observation term", f"{package}.observations")
        self.rewards: Registry[RewardTerm] = Registry("reward term", f"{package}.rewards")

    def deployable(
        self,
        *,
        width: Width,
        mirror: tuple[int, ...] | str,
        measured: Callable[[Any], Measured] | None = None,
        bounds: Bounds | None = None,
    ) -> Callable[[Function], Function]:
        """Register ``f(sensed, **params) -> (N, width)``: what a real robot has. Goes to the group ``policy``.

        ``measured`` tells of a config what a robot makes the values of; without it, it is asked for the values.
        """
        return self._observation("policy", width, mirror, bounds, ("sensed",), measured)

    def sim_only(
        self, *, width: Width, mirror: tuple[int, ...] | str, bounds: Bounds | None = None
    ) -> Callable[[Function], Function]:
        """Register ``f(sensed, truth, **params) -> (N, width)``: what only a simulator has. Goes to ``privileged``."""
        return self._observation("privileged", width, mirror, bounds, ("sensed", "truth"))

    def reward(self, *, trail: str | None = None, bounds: Bounds | None = None) -> Callable[[Function], Function]:
        """Register ``f(context, **params) -> (N,)`` as a reward term under the function's name.

        ``bounds`` are those of its parameters; ``trail`` names the parameter that tells how many steps it looks back.
        """

        def register(function: Function) -> Function:
            _check_signature(function, ("context",))
            self.rewards.add(RewardTerm(name=function.__name__, function=function, trail=trail, bounds=bounds or {}))
            return function

        return register

    def _observation(
        self,
        group: str,
        width: Width,
        mirror: tuple[int, ...] | str,
        bounds: Bounds | None,
        sources: tuple[str, ...],
        measured: Callable[[Any], Measured] | None = None,
    ) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            _check_signature(function, sources)
            term = ObservationTerm(
                name=function.__name__,
                group=group,
                width=width,
                function=function,
                bounds=bounds or {},
                mirror=mirror,
                measured=measured,
            )
            self.observations.add(term)
            return function

        return register


def _positional(function: Function) -> list[str]:
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]


def _check_signature(function: Function, sources: tuple[str, ...]) -> None:
    if tuple(_positional(function)) != sources:
        raise TypeError(
            f"term '{function.__name__}' must take ({', '.join(sources)}, *, **params), "
            f"not {inspect.signature(function)}"
        )


def check_params(term: ObservationTerm | RewardTerm, params: Mapping[str, Any], key: str) -> None:
    """Raise ConfigError when ``params`` are not what the term's keyword arguments and their bounds allow."""
    keywords = {p.name: p for p in inspect.signature(term.function).parameters.values() if p.kind is p.KEYWORD_ONLY}
    for name, value in params.items():
        if name not in keywords:
            expected = f"one of {', '.join(keywords)}" if keywords else "no parameters"
            raise ConfigError(f"{key}.{name}", value, expected, keywords)
        annotation = keywords[name].annotation
        if not _fits(value, annotation):
            raise ConfigError(f"{key}.{name}", value, getattr(annotation, "__name__", str(annotation)))
        if value is not None and name in term.bounds:
            low, high = term.bounds[name]
            if not low <= value <= high:
                raise ConfigError(f"{key}.{name}", value, f"{low:g} to {high:g}")
    for name, parameter in keywords.items():
        if parameter.default is parameter.empty and name not in params:
            raise ConfigError(f"{key}.{name}", None, "a value; this parameter has no default")


def _fits(value: object, annotation: Any) -> bool:
    if annotation is inspect.Parameter.empty:
        return True
    if isinstance(value, int) and not isinstance(value, bool) and annotation in (float, float | None):
        return True
    return isinstance(value, annotation) and not (isinstance(value, bool) and annotation is not bool)
