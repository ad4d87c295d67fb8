"""A config as plain data, as files and MLflow hold it, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from navtask import tasks
from navtask.errors import ConfigError
from navtask.tasks import TaskDefinition
from orchestrator.config.schema import Config
from orchestrator.config.typed import typed
from orchestrator.devices import resolve_device
from orchestrator.errors import UserError, as_user_error, shown
from orchestrator.record.fields import flatten


def to_plain(config: Config) -> dict[str, Any]:
    """The config as plain dicts, lists and scalars: what is written as YAML, and read back by ``from_plain``."""
    return asdict(config)


def from_plain(plain: Mapping[str, Any]) -> Config:
    """The dataclasses of a plain mapping, typed through the schema; imports and runs nothing that it names.

    Raises UserError.
    """
    if not isinstance(plain, Mapping):  # a file may hold anything
        raise UserError("a config: expected a mapping of keys to values")
    for path, value in flatten(plain):
        if "${" in str(value):  # what we write is resolved already; a stranger's would read our environment
            raise UserError(f"{path}={value}: expected a plain value, without interpolation")
    config = typed(Config, plain, "", settled_by(_task(plain.get("task"))))
    assert isinstance(config, Config)
    config.device = resolve_device(config.device)
    return config


def _task(plain: Any) -> TaskDefinition:
    if not isinstance(plain, Mapping):
        raise UserError(f"task={shown(plain)}: expected a mapping with name and the settings of that task")
    try:
        return tasks.get(str(plain.get("name")))
    except ConfigError as error:
        raise as_user_error(error) from error


def settled_by(task: TaskDefinition) -> dict[str, Any]:
    """The types of the parts that the schema leaves open, by path; most are the task's."""
    world: Any = task.world_type
    return {"task": task.config, "evaluation.frozen": dict[str, world], "sweep.pruner": dict[str, Any] | None}
