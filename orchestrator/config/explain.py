"""What went wrong in composing a config, as one line that a person can act on."""

import re
from collections.abc import Sequence
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.config.plain import one_line
from orchestrator.config.schema import Config, SweepConfig
from orchestrator.errors import nearest
from orchestrator.record.fields import flatten


def composition_error(error: BaseException, overrides: Sequence[str]) -> str:
    """One line for an exception that Hydra raised while it composed these overrides."""
    if isinstance(error, MissingConfigException):
        return _missing_choice(error, overrides)
    if isinstance(error, OverrideParseException):
        lines = (line for line in error.message.splitlines() if not line.startswith(("Error parsing", "See http")))
        detail = next(lines, "")
        return f"{error.override}: not an override; expected key=value, in Hydra's grammar ({detail})"
    text = str(error).strip()
    if match := re.match(r"Could not override '([^']+)'\.", text):
        return _unknown_key(match[1], overrides)
    if match := re.match(r"Error merging override (.*)", text):
        return _wrong_value(match[1], error.__cause__, overrides)
    for override in overrides:
        if override.lstrip("+").startswith("sweep.") and not any(o.startswith("+sweep=") for o in overrides):
            return f"{override.lstrip('+')}: there is no sweep to change; choose one with +sweep=<name>"
        if override.lstrip("+").startswith("algorithm.rnd.") and not any(
            o.startswith("algorithm/rnd=") for o in overrides
        ):
            return f"{override.lstrip('+')}: there is no such reward to change; choose one with algorithm/rnd=default"
    if text.startswith("Unexpected type for root"):  # OmegaConf's words for a path that leads through null
        for override in overrides:
            if empty := _null_above(override.lstrip("+~").partition("=")[0]):
                return f"{override}: {empty} is null, so there is nothing in it to change"
    first = text.splitlines()[0] if text else type(error).__name__
    if isinstance(error.__cause__, OmegaConfBaseException):
        return f"{first}: {one_line(error.__cause__)}"
    if isinstance(error, OmegaConfBaseException):
        return one_line(error)
    return first


def _missing_choice(error: MissingConfigException, overrides: Sequence[str]) -> str:
    missing = str(error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = missing.rpartition("/")
    if not group:
        return str(error).splitlines()[0]
    typed = next(
        (o for o in overrides if o.lstrip("+").partition("=")[0].partition("@")[0] == group), f"{group}={name}"
    )
    options = [option for option in error.options or () if not option.endswith("_schema")]
    return f"{typed}: there is no such {group}{nearest(name, options)}"


def _unknown_key(key: str, overrides: Sequence[str]) -> str:
    typed = next((o for o in overrides if o.lstrip("+~").partition("=")[0] == key), key)
    if key == "sweep":
        return f"{typed}: a sweep is added to the config, with a plus: +{typed}"
    if key.startswith("sweep.") and not any(o.startswith("+sweep=") for o in overrides):
        return f"{typed}: there is no sweep to change; choose one with +sweep=<name>"
    known = _known_keys()
    if key in known:
        return f"{typed}: an entry that is not there yet is added with a plus: +{typed}"
    return f"{typed}: the config has no '{key}'{nearest(key, known)}"


def _wrong_value(override: str, cause: BaseException | None, overrides: Sequence[str]) -> str:
    key = override.lstrip("+~").partition("=")[0]
    if not isinstance(cause, OmegaConfBaseException):
        return f"{override}: {cause}"
    if re.search(r"Key '.*' (not in|is not in)", str(cause)):
        return _unknown_key(key, overrides)
    told = one_line(cause)
    expected = told.partition(": ")[2] if told.startswith(str(cause.full_key)) else told
    return f"{override}: {expected}"


def _null_above(key: str) -> str | None:
    """The path of something optional that is null, and that ``key`` would lie within."""
    return next((path for path, value in _leaves() if value is None and key.startswith(f"{path}.")), None)


def _leaves() -> list[tuple[str, Any]]:
    """Every leaf of the composed config, by its path."""
    from hydra import compose

    try:
        plain = OmegaConf.to_container(compose("config"), resolve=False)
    except Exception:
        plain = OmegaConf.to_container(OmegaConf.structured(Config), resolve=False)
    assert isinstance(plain, dict)
    leaves = flatten({str(key): value for key, value in plain.items()})
    return [(path, value) for path, value in leaves if not path.startswith("hydra")]


def _known_keys() -> list[str]:
    """Every path of the composed config, and what a sweep may say."""
    keys = [path for path, _ in _leaves()]
    parents = {path[: match.start()] for path in keys for match in re.finditer(r"\.", path)}
    return [*keys, *parents, *(f"sweep.{name}" for name in SweepConfig.__dataclass_fields__)]
