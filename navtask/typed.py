"""Plain values, as YAML and command lines hold them, as the types that a schema gives them.

A schema is a dataclass whose fields are texts, numbers, lists, mappings or dataclasses again. What it leaves open
(``Any``), ``settled`` may say: path -> type. Whoever reads a task's settings reads them here.
"""

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from navtask.errors import ConfigError, MissingValue, UnknownKey

TRUE, FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")
UNSET = "???"
"""What stands, in OmegaConf's files and defaults, for a value that somebody must give."""


def typed(kind: Any, value: Any, key: str, settled: Mapping[str, Any] = types.MappingProxyType({})) -> Any:
    """``value``, which stands at ``key``, as ``kind``. Raises ConfigError."""
    bare, may_be_null = optional(settled.get(key, kind))
    if bare is Any or (value is None and may_be_null):
        return value
    if isinstance(value, Mapping):
        value = {str(name): inner for name, inner in value.items()}
        if is_dataclass(bare):
            return _instance(bare, value, key, settled)
        if get_origin(bare) is dict:
            name_kind, inner_kind = get_args(bare)
            return {
                typed(name_kind, name, join(key, name)): typed(inner_kind, inner, join(key, name), settled)
                for name, inner in value.items()
            }
    elif isinstance(value, list | tuple) and get_origin(bare) is list:
        inner_kind = get_args(bare)[0]
        return [typed(inner_kind, inner, f"{key}[{index}]", settled) for index, inner in enumerate(value)]
    elif bare in _SCALARS:
        try:
            return _SCALARS[bare][0](value)
        except ValueError:
            pass
    raise ConfigError(key or "the config", value, words(settled.get(key, kind)))


def _instance(kind: Any, value: Mapping[str, Any], key: str, settled: Mapping[str, Any]) -> Any:
    known = hints(kind)
    for name in value:
        if name not in known:
            raise UnknownKey(join(key, name), value[name], known)
    given = {}
    for field in fields(kind):
        path = join(key, field.name)
        if value.get(field.name, UNSET) != UNSET:
            given[field.name] = typed(known[field.name], value[field.name], path, settled)
        elif _needs_value(field):
            raise MissingValue(path)
    return kind(**given)


def _needs_value(field: Field[Any]) -> bool:
    return field.default_factory is MISSING and (field.default is MISSING or field.default == UNSET)


# -- scalars: each raises ValueError ----------------------------------------------------------------------------------


def _bool(value: Any) -> bool:
    word = str(value).lower()
    if not isinstance(value, bool | int | str) or word not in (*TRUE, *FALSE):
        raise ValueError
    return word in TRUE


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    return float(value)  # YAML takes 1e-3 for a text


def _str(value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError
    return str(value)


_SCALARS: Mapping[Any, tuple[Callable[[Any], Any], str]] = {
    bool: (_bool, "true or false"),
    int: (_int, "a whole number"),
    float: (_float, "a number"),
    str: (_str, "a text"),
}


# -- types ------------------------------------------------------------------------------------------------------------


def words(kind: Any) -> str:
    """A type as people say it."""
    bare, may_be_null = optional(kind)
    told = "a mapping"
    if bare in _SCALARS:
        told = _SCALARS[bare][1]
    elif is_dataclass(bare):
        told = f"a mapping with {', '.join(hints(bare))}"
    elif get_origin(bare) is list:
        inner = get_args(bare)[0]
        told = f"a list of {words(inner).removeprefix('a ')}s" if inner in _SCALARS else "a list of mappings"
    return f"null or {told}" if may_be_null else told


def join(key: str, name: str) -> str:
    """The path of an entry."""
    return f"{key}.{name}" if key else name


def optional(kind: Any) -> tuple[Any, bool]:
    """A type without ``| None``, and whether it had that."""
    if get_origin(kind) in (Union, types.UnionType):
        (bare,) = (inner for inner in get_args(kind) if inner is not types.NoneType)
        return bare, True
    return kind, False


hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
"""Field -> type, of a dataclass."""
