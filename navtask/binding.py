"""From a config's terms to functions: each bound to its parameters, observations to their sources as well."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from navtask.config import ObservationTermConfig, RewardTermConfig, TaskConfig
from navtask.contract import RewardSum
from navtask.interface import Measured
from navtask.registry import ObservationTerm, Registry, RewardTerm, evaluate

MirrorMap = tuple[torch.Tensor, torch.Tensor]
"""(index, sign): the mirrored vector is ``v[..., index] * sign``."""


class ObservationGroups:
    """The enabled terms of a config, by group, for N rooms."""

    def __init__(
        self, registry: Registry[ObservationTerm], config: TaskConfig, num_envs: int, *, privileged: bool = False
    ):
        self._num_envs, self._config = num_envs, config
        self._terms: dict[str, list[tuple[ObservationTerm, int, Callable[..., torch.Tensor]]]] = {"policy": []}
        if privileged:
            self._terms["privileged"] = []
        settings: Mapping[str, ObservationTermConfig] = config.observations
        for name, setting in settings.items():
            term = registry.get(name, "task.observations")
            if setting.enabled and term.group in self._terms:
                self._terms[term.group].append((term, term.width_for(config), partial(term.function, **setting.params)))

    @property
    def names(self) -> list[str]:
        """Of the groups."""
        return list(self._terms)

    def width(self, group: str) -> int:
        """Declared width of a group."""
        return sum(width for _, width, _ in self._terms[group])

    def layout(self, group: str) -> Iterator[tuple[ObservationTerm, int, int]]:
        """Each term of a group with the place of its first value, and its width."""
        start = 0
        for term, width, _ in self._terms[group]:
            yield term, start, width
            start += width

    def measured(self, group: str) -> Iterator[tuple[str, Measured, int, int]]:
        """Each term's name, what it is made of, the place of its first value, and its width."""
        for term, start, width in self.layout(group):
            yield term.name, term.measured_for(self._config), start, width

    def read(self, group: str, sensed: Any, truth: Any = None) -> torch.Tensor:
        """(N, width) this instant's terms of a group. Raises TermError for a term that raises or isn't as wide as it
        declares to be."""
        sources = (sensed,) if group == "policy" else (sensed, truth)  # a DEPLOYABLE term never sees the truth
        values = [
            evaluate("observation", term.name, function, (self._num_envs, width), *sources)
            for term, width, function in self._terms[group]
        ]
        return torch.cat(values, dim=-1)

    def mirror_map(self, group: str) -> MirrorMap:
        """What a left-right reflection of the world does to a group, each (width,)."""
        maps = [(start, term.mirror_map(width)) for term, start, width in self.layout(group)]
        return torch.cat([start + index for start, (index, _) in maps]), torch.cat([sign for _, (_, sign) in maps])


def bind_rewards(
    registry: Registry[RewardTerm], settings: Mapping[str, RewardTermConfig], device: torch.device
) -> RewardSum:
    """The weighted terms of a config."""
    terms = [registry.get(name, "task.rewards") for name in settings]
    return RewardSum(
        names=list(settings),
        terms=[partial(t.function, **s.params) for t, s in zip(terms, settings.values(), strict=True)],
        weights=torch.tensor([float(s.weight) for s in settings.values()], device=device),
    )


def trail_length(registry: Registry[RewardTerm], settings: Mapping[str, RewardTermConfig]) -> int:
    """How many steps of the robot's trail the terms of a config look back on."""
    lengths = [0]
    for name, setting in settings.items():
        term = registry.get(name, "task.rewards")
        if term.trail is not None:
            lengths.append(setting.params.get(term.trail, term.default(term.trail)))
    return max(lengths)
