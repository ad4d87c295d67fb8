"""Hydra's side: ``conf/`` and the command line's overrides become a Config."""

import dataclasses
from dataclasses import fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from navtask import tasks
from navtask.typed import hints, optional
from orchestrator.config.choices import SCHEMA, listed
from orchestrator.config.explain import one_line
from orchestrator.config.plain import from_plain
from orchestrator.config.schema import Config
from orchestrator.config.validation import validate
from orchestrator.devices import resolve_device
from orchestrator.errors import UserError

PROJECT = Path(__file__).resolve().parents[2]
"""Relative output paths are taken from here, whatever the working directory."""

CONF = PROJECT / "conf"


def compose(*overrides: str) -> Config:
    """The config under these overrides, in Hydra's grammar.

    Raises UserError; and for an override that can't be composed what Hydra raises.
    """
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return from_composed(hydra.compose("config", overrides=list(overrides)))


def from_composed(composed: DictConfig) -> Config:
    """The typed, checked config of what Hydra composed; interpolations and device resolved. Raises UserError."""
    try:
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(one_line(error)) from error
    assert isinstance(plain, dict)
    config = from_plain({str(key): value for key, value in plain.items()})
    validate(config)
    return config


def _register() -> None:
    """Make the schema known to Hydra, and to OmegaConf what ``conf/config.yaml`` asks for."""
    store = ConfigStore.instance()
    store.store(name="config_schema", node=_composed(Config))
    for name in tasks.names():
        store.store(group="task", name=f"{name}{SCHEMA}", node=_composed(tasks.get(name).config))
    OmegaConf.register_new_resolver("by_device", _by_device, replace=True)
    OmegaConf.register_new_resolver("choices", listed, replace=True)


def _composed(schema: type) -> type:
    """A dataclass while Hydra composes it. ``from_plain`` types what is left open here:

    - OmegaConf refuses to add an entry to a mapping of dataclasses, and a term that somebody registered must be addable
      on the command line;
    - it takes every number but 0 for true.
    """
    changed = []
    for field in fields(schema):
        kind = hints(schema)[field.name]
        loose = _loosened(kind)
        if loose is not kind:
            default = dataclasses.field(default=field.default, default_factory=field.default_factory)
            changed.append((field.name, loose, default))
    return make_dataclass(f"Composed{schema.__name__}", changed, bases=(schema,), kw_only=True) if changed else schema


def _loosened(kind: Any) -> Any:
    if kind is bool:
        return Any
    if get_origin(kind) is dict and is_dataclass(get_args(kind)[1]):
        return dict[str, Any]
    bare, may_be_null = optional(kind)
    if isinstance(bare, type) and is_dataclass(bare):
        loose = _composed(bare)
        return kind if loose is bare else loose | None if may_be_null else loose
    return kind


def _by_device(device: str, cpu: Any, cuda: Any) -> Any:
    """``${by_device:${device},256,4096}``: one value for a CPU, one for a GPU."""
    return cuda if resolve_device(device).startswith("cuda") else cpu


_register()
