"""The settings of a task as a command line names them: those of ``conf/``, or a file's, and what differs from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from navtask import tasks
from navtask.errors import ConfigError
from navtask.typed import typed

CONF = Path(__file__).parents[2] / "conf" / "task"
"""Where the tasks' numbers are."""


def is_override(key: str) -> bool:
    """Whether a key names something within a task, as ``task/rooms`` and ``task.history`` do."""
    return key.lstrip("+").startswith(("task/", "task."))


def load(task: str, overrides: Mapping[str, str]) -> Any:
    """The checked config of a task: its name, or a YAML file of its settings (or of a whole config that has them).

    ``overrides`` are what a training's command line takes for its task, ``task/<folder>=<name>`` and
    ``task.<path>=<value>``. Raises ConfigError.
    """
    plain = _of_file(Path(task)) if task.endswith((".yaml", ".yml")) else _of_conf(task)
    values = {key.lstrip("+"): value for key, value in overrides.items()}
    for key, value in values.items():
        if "/" in key:
            plain[key.partition("/")[2]] = _choice(key, value)
    for key, value in values.items():
        if "/" not in key:
            _put(plain, key, value)
    definition = tasks.get(str(plain.get("name")))
    config = typed(definition.config, plain, "task")
    definition.validate(config)
    return config


def _of_file(file: Path) -> dict[str, Any]:
    try:
        plain = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError("task", str(file), f"a YAML file ({' '.join(str(error).split())})") from error
    plain = plain.get("task", plain) if isinstance(plain, dict) else plain
    if not isinstance(plain, dict):
        raise ConfigError("task", str(file), "a file with the settings of a task")
    return plain


def _of_conf(task: str) -> dict[str, Any]:
    """As its defaults list puts them together."""
    tasks.get(task)
    file = CONF / f"{task}.yaml"
    if not file.exists():
        raise ConfigError("task", task, f"a task with settings in {CONF}", [path.stem for path in CONF.glob("*.yaml")])
    plain: dict[str, Any] = yaml.safe_load(file.read_text())
    for entry in plain.pop("defaults", ()):
        if isinstance(entry, dict):
            plain |= {group: _choice(f"task/{group}", name) for group, name in entry.items()}
    return plain


def _choice(key: str, name: str) -> Any:
    folder = CONF / key.partition("/")[2]
    if not folder.is_dir():
        raise ConfigError(key, name, "a folder of conf/task", [f"task/{path.name}" for path in CONF.iterdir()])
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        raise ConfigError(key, name, f"one of {', '.join(names)}", names)
    return yaml.safe_load((folder / f"{name}.yaml").read_text())


def _put(plain: dict[str, Any], key: str, value: str) -> None:
    _, *path, last = key.split(".")
    node = plain
    for name in path:
        if node.get(name) is None:
            node[name] = {}
        if not isinstance(node[name], dict):
            raise ConfigError(key, value, f"nothing within {name}, which is {node[name]!r}")
        node = node[name]
    try:
        node[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(key, value, "a value, as YAML writes it") from error
