"""From what the command line names to an environment that can be made again and again."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from navtask import tasks
from navtask.doctor.patient import Patient
from navtask.doctor.settings import load
from navtask.errors import ConfigError
from navtask.physics import resolve_backend

ROOMS = 48
"""Enough for every check to see what it looks for."""


def find(
    task: str,
    *,
    overrides: Mapping[str, str] = MappingProxyType({}),
    seed: int = 0,
    rooms: int = ROOMS,
    device: str = "cpu",
    backend: str = "auto",
    privileged: bool = False,
) -> Patient:
    """A task by its name or file, see ``settings.load``, or ``package.module:Class``. Raises ConfigError."""
    _check_device(device)
    if ":" in task:
        for key, value in overrides.items():
            raise ConfigError(key, value, f"no settings: {task} takes none")
        return foreign(task, seed=seed, rooms=rooms, device=device)
    config = load(task, overrides)
    definition = tasks.get(config.name)
    if privileged and "privileged" not in definition.groups:
        groups = ", ".join(definition.groups)
        raise ConfigError("privileged", privileged, f"false: {config.name} observes {groups} alone")
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
