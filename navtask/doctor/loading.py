"""From what the command line names to an environment that can be made again and again."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import torch
import yaml  # type: ignore[import-untyped]

from navtask import tasks
from navtask.doctor.patient import Patient
from navtask.errors import ConfigError
from navtask.physics import resolve_backend

CONF = Path(__file__).parents[2] / "conf" / "task"
"""Where the tasks' numbers are."""

ROOMS = 48
"""Enough for every check to see what it looks for."""


def find(task: str, *, seed: int = 0, rooms: int = ROOMS, device: str = "cpu") -> Patient:
    """A task by its name, with the numbers of ``conf/``, or ``package.module:Class``. Raises ConfigError."""
    _check_device(device)
    if ":" in task:
        return foreign(task, seed=seed, rooms=rooms, device=device)
    definition = tasks.get(task)
    config = typed(definition.config, _composed(task))
    definition.validate(config)
    return built_in(config, seed=seed, rooms=rooms, device=device)


def built_in(
    config: Any,
    *,
    seed: int = 0,
    rooms: int = ROOMS,
    device: str = "cpu",
    backend: str = "auto",
    privileged: bool = False,
) -> Patient:
    """The task of a typed config."""
    definition = tasks.get(config.name)
    backend = resolve_backend(backend, device)

    def make(num_envs: int, seed: int) -> Any:
        return definition.make_env(
            config, num_envs=num_envs, seed=seed, device=device, backend=backend, privileged=privileged
        )

    return Patient(make, seed=seed, rooms=rooms)


def foreign(path: str, *, seed: int, rooms: int, device: str) -> Patient:
    """A class, or a function, that makes an environment; handed ``num_envs``, ``seed`` and ``device`` if it takes them.

    Raises ConfigError where there is none, or it needs more.
    """
    module, _, attribute = path.partition(":")
    try:
        maker: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        parameters = inspect.signature(maker).parameters
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError("task", path, f"package.module:Class ({' '.join(str(error).split())})") from error
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    offered = {"num_envs": rooms, "seed": seed, "device": device}
    needed = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in offered
    ]
    if needed:
        raise ConfigError(
            "task", path, f"a class that needs no more than {', '.join(offered)}, not {needed[0]} as well"
        )
    taken = {name for name in offered if every or name in parameters}

    def make(num_envs: int, seed: int) -> Any:
        given = {"num_envs": num_envs, "seed": seed, "device": device}
        return maker(**{name: value for name, value in given.items() if name in taken})

    return Patient(make, seed=seed, rooms=rooms, seeded="seed" in taken)


def _check_device(device: str) -> None:
    known = ["cpu", "cuda", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
    if device not in known or (device != "cpu" and not torch.cuda.is_available()):
        raise ConfigError("device", device, "cpu, or the cuda device of a GPU that this machine has", known)


def _composed(task: str) -> dict[str, Any]:
    """The task's settings as its defaults list puts them together."""
    file = CONF / f"{task}.yaml"
    if not file.exists():
        raise ConfigError("task", task, f"a task with settings in {CONF}", [path.stem for path in CONF.glob("*.yaml")])
    plain: dict[str, Any] = yaml.safe_load(file.read_text())
    for entry in plain.pop("defaults", ()):
        if isinstance(entry, dict):
            for group, name in entry.items():
                plain[group] = yaml.safe_load((CONF / group / f"{name}.yaml").read_text())
    return plain


def typed(kind: Any, plain: Any) -> Any:
    """``plain`` as an instance of the dataclass ``kind``, and so on inside of it."""
    if is_dataclass(kind):
        assert isinstance(kind, type)
        hints = get_type_hints(kind)
        return kind(**{name: typed(hints[name], value) for name, value in plain.items()})
    if get_origin(kind) is dict and isinstance(plain, Mapping):
        return {name: typed(get_args(kind)[1], value) for name, value in plain.items()}
    return plain
