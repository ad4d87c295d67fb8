"""Plain values as the types that the schema gives them, or one line on what was expected instead.

A schema is a dataclass whose fields are texts, numbers, lists, mappings or dataclasses again. What it leaves open
(``Any``), ``settled`` may say: path -> type, by which a task brings in its own dataclasses.
"""

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import omegaconf
from omegaconf.errors import ValidationError

from orchestrator.errors import UserError, nearest, shown

# The converters that Hydra's composing uses as well: "3" is a number, "on" is true.
_SCALARS = {
    bool: (omegaconf.BooleanNode(), "true or false"),
    int: (omegaconf.IntegerNode(), "a whole number"),
    float: (omegaconf.FloatNode(), "a number"),
    str: (omegaconf.StringNode(), "a text"),
}


def typed(kind: Any, value: Any, key: str, settled: Mapping[str, Any]) -> Any:
    """``value``, which stands at ``key``, as ``kind``. Raises UserError."""
    bare, may_be_null = _bare(settled.get(key, kind))
    if bare is Any or (value is None and may_be_null):
        return value
    if isinstance(value, Mapping):
        value = {str(name): inner for name, inner in value.items()}
        if is_dataclass(bare):
            return _instance(bare, value, key, settled)
        if get_origin(bare) is dict:
            name_kind, inner_kind = get_args(bare)
            return {
                typed(name_kind, name, join(key, name), {}): typed(inner_kind, inner, join(key, name), settled)
                for name, inner in value.items()
            }
    elif isinstance(value, list | tuple) and get_origin(bare) is list:
        inner_kind = get_args(bare)[0]
        return [typed(inner_kind, inner, f"{key}[{index}]", settled) for index, inner in enumerate(value)]
    elif value is not None and bare in _SCALARS:
        try:
            return _SCALARS[bare][0].validate_and_convert(value)
        except ValidationError:
            pass
    raise UserError(f"{key or 'the config'}={shown(value)}: expected {words(settled.get(key, kind))}")


def _instance(kind: Any, value: Mapping[str, Any], key: str, settled: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    for name in value:
        if name not in hints:
            raise UserError(f"{join(key, name)}: no such key{nearest(name, hints)}")
    given = {}
    for field in fields(kind):
        path = join(key, field.name)
        if value.get(field.name, omegaconf.MISSING) != omegaconf.MISSING:
            given[field.name] = typed(hints[field.name], value[field.name], path, settled)
        elif _needs_value(field):
            raise UserError(f"{path}: a value is needed")
    return kind(**given)


def _needs_value(field: Field[Any]) -> bool:
    return field.default_factory is MISSING and field.default in (MISSING, omegaconf.MISSING)


def kind_at(schema: type, key: str, settled: Mapping[str, Any]) -> Any | None:
    """The type of what stands at a path; ``Any`` below what the schema leaves open, None where it has no such path."""
    kind: Any = schema
    path = ""
    for name in key.split("."):
        path = join(path, name)
        bare, _ = _bare(kind)
        if is_dataclass(bare):
            kind = _hints(bare).get(name)
        elif get_origin(bare) is dict:
            kind = get_args(bare)[1]
        elif bare is not Any:
            return None
        kind = settled.get(path, kind)
    return kind


def words(kind: Any) -> str:
    """A type as people say it."""
    bare, may_be_null = _bare(kind)
    told = "a mapping"
    if bare in _SCALARS:
        told = _SCALARS[bare][1]
    elif is_dataclass(bare):
        told = f"a mapping with {', '.join(_hints(bare))}"
    elif get_origin(bare) is list:
        inner = get_args(bare)[0]
        told = f"a list of {words(inner).removeprefix('a ')}s" if inner in _SCALARS else "a list of mappings"
    return f"null or {told}" if may_be_null else told


def join(key: str, name: str) -> str:
    """The path of an entry."""
    return f"{key}.{name}" if key else name


def entries(plain: Any, key: str = "") -> Iterator[str]:
    """The paths of all entries of a mapping, inner ones after those that they are in."""
    if isinstance(plain, Mapping):
        for name, inner in plain.items():
            yield join(key, str(name))
            yield from entries(inner, join(key, str(name)))


def _bare(kind: Any) -> tuple[Any, bool]:
    """A type without ``| None``, and whether it had that."""
    if get_origin(kind) in (Union, types.UnionType):
        (bare,) = (inner for inner in get_args(kind) if inner is not types.NoneType)
        return bare, True
    return kind, False


_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
