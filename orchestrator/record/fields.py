"""Fits params, tags and metric names into what MLflow accepts.

Limits of MLflow 3.17 (`mlflow/utils/validation.py`): keys of at most 250 characters, of letters, digits and `_-. :/`,
which must also be normal as paths; values of a param at most 6,000 characters, of a tag 8,000; 100 params and 100 tags
a batch. A value that is cut says so at its end. Nothing leaves without having been redacted.
"""

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.record.redact import redact

BATCH_FIELDS = 100
BATCH_METRICS = 1000

_KEY_LENGTH = 250
_PARAM_LENGTH = 6000
_TAG_LENGTH = 8000
_CUT = " … (cut)"
_ILLEGAL = re.compile(r"[^\w.\- :/]", re.ASCII)


def params(config: Mapping[str, Any], searched: Mapping[str, Any]) -> dict[str, str]:
    """Return the params of a trial: the flat config, and what was searched once more as `search.<path>`."""
    flat = dict(flatten(config))
    flat |= {f"search.{path}": value for path, value in searched.items()}
    return _unique((key, _cut(_text(value), _PARAM_LENGTH)) for key, value in flat.items())


def tags(values: Mapping[str, Any]) -> dict[str, str]:
    """Return tags as MLflow takes them; None means that there is no such tag."""
    return _unique((key, _cut(_text(value), _TAG_LENGTH)) for key, value in values.items() if value is not None)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of a nested mapping; lists and empty mappings are values."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{path}.")
        else:
            yield path, value


def legal_key(key: str) -> str:
    """Return the nearest key that MLflow takes; a legal one is returned as it is."""
    legal = _ILLEGAL.sub("_", redact(key))
    if not legal or posixpath.normpath(legal) != legal or legal.startswith(("/", "..")) or legal == ".":
        legal = re.sub(r"[/.]{2,}|^[/.]+|/\.|[/.]+$", "_", legal) or "_"
    if len(legal) > _KEY_LENGTH:
        # what was cut off may be all that tells two keys apart
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        legal = f"{legal[: _KEY_LENGTH - 9]}-{digest}"
    return legal


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Make keys legal; a second one that becomes the same gets a number."""
    result: dict[str, str] = {}
    for key, value in pairs:
        wanted = legal = legal_key(key)
        number = 2
        while legal in result:
            legal = f"{wanted[: _KEY_LENGTH - 4]}_{number}"
            number += 1
        result[legal] = value
    return result


def _text(value: Any) -> str:
    """Return a scalar as people write it in YAML, anything nested as JSON."""
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool | list | tuple | Mapping):
        return redact(json.dumps(value, default=str, ensure_ascii=False))
    return redact(str(value))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - len(_CUT)] + _CUT
