"""Plain values as the types of the config's schema, or one line on what was expected instead."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin

from navtask import typed as by_schema
from navtask.errors import ConfigError
from navtask.typed import hints, join, optional
from orchestrator.errors import as_user_error


def typed(kind: Any, value: Any, key: str, settled: Mapping[str, Any]) -> Any:
    """See ``navtask.typed``; ``settled`` is how a task brings in its own dataclasses. Raises UserError."""
    try:
        return by_schema.typed(kind, value, key, settled)
    except ConfigError as error:
        raise as_user_error(error) from error


def kind_at(schema: type, key: str, settled: Mapping[str, Any]) -> Any | None:
    """The type of what stands at a path; ``Any`` below what the schema leaves open, None where it has no such path."""
    kind: Any = schema
    path = ""
    for name in key.split("."):
        path = join(path, name)
        bare, _ = optional(kind)
        if is_dataclass(bare):
            kind = hints(bare).get(name)
        elif get_origin(bare) is dict:
            kind = get_args(bare)[1]
        elif bare is not Any:
            return None
        kind = settled.get(path, kind)
    return kind


def entries(plain: Any, key: str = "") -> Iterator[str]:
    """The paths of all entries of a mapping, inner ones after those that they are in."""
    if isinstance(plain, Mapping):
        for name, inner in plain.items():
            yield join(key, str(name))
            yield from entries(inner, join(key, str(name)))
