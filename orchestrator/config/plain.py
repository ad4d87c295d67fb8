"""A config as plain data, as files and MLflow hold it, and back."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from navtask import tasks
from navtask.errors import ConfigError
from navtask.tasks import TaskDefinition
from orchestrator.config.schema import Config, EvaluationConfig
from orchestrator.devices import resolve_device
from orchestrator.errors import UserError, as_user_error, nearest
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
    schema = OmegaConf.structured(Config)
    task = _definition(plain)
    try:
        schema.task = OmegaConf.structured(task.config)
        evaluation = OmegaConf.structured(EvaluationConfig)
        evaluation.frozen = {name: OmegaConf.structured(task.world_type) for name in _frozen_names(plain)}
        schema.evaluation = evaluation
        typed = OmegaConf.to_object(OmegaConf.merge(schema, OmegaConf.create(dict(plain))))
    except OmegaConfBaseException as error:
        told = one_line(error)
        others = [path for path, _ in flatten(plain) if path != error.full_key] + list(Config.__dataclass_fields__)
        raise UserError(told + (nearest(error.full_key, others) if told.endswith("no such key") else "")) from error
    assert isinstance(typed, Config)
    typed.device = resolve_device(typed.device)
    return typed


def _definition(plain: Mapping[str, Any]) -> TaskDefinition:
    """The task that a plain config is of. Raises UserError."""
    named = plain.get("task")
    try:
        return tasks.get(named.get("name", "") if isinstance(named, Mapping) else "")
    except ConfigError as error:
        raise as_user_error(error) from error


def _frozen_names(plain: Mapping[str, Any]) -> list[str]:
    evaluation = plain.get("evaluation")
    frozen = evaluation.get("frozen") if isinstance(evaluation, Mapping) else None
    return [str(name) for name in frozen] if isinstance(frozen, Mapping) else []


def one_line(error: OmegaConfBaseException) -> str:
    """An OmegaConf error as one line that names the key."""
    first = str(error.msg or error).splitlines()[0]
    if first.startswith("Missing mandatory value"):
        return f"{error.full_key}: a value is needed"
    match = re.match(r"Value '(.*)' (?:of type '.*' could not be converted to|is not a valid) (\w+)", first)
    if match:
        return f"{error.full_key}={match[1]}: expected {_KINDS.get(match[2], match[2])}"
    if error.full_key and re.match(r"Key '.*' (not in|is not in)", first):
        return f"{error.full_key}: no such key"
    return f"{error.full_key}: {first}" if error.full_key and error.full_key not in first else first


_KINDS = {"Integer": "a whole number", "Float": "a number", "bool": "true or false", "string": "a text"}
