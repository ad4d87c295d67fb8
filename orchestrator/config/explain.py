"""What is wrong with a command line that Hydra can't compose, as one line that a person can act on."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hydra
import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from navtask import tasks
from navtask.typed import words
from orchestrator.config.choices import choices_of
from orchestrator.config.plain import settled_by
from orchestrator.config.schema import Config
from orchestrator.config.typed import entries, kind_at, typed
from orchestrator.errors import UserError, nearest
from orchestrator.record.fields import flatten
from orchestrator.record.redact import holds_credentials


def composition_error(error: BaseException, overrides: Sequence[str]) -> str:
    """One line for an exception that Hydra raised while it composed these overrides. Hydra is initialised.

    Hydra's own words are about its inside, and don't always name the key; so each override is looked at again.
    """
    if isinstance(error, OverrideParseException):
        lines = (line for line in error.message.splitlines() if not line.startswith(("Error parsing", "See http")))
        detail = next(lines, "")
        key, _, value = error.override.partition("=")
        if holds_credentials(value):
            return (
                f"{key}=... (not shown, since it may hold a password): quotes and spaces are written as %27, %22, %20"
            )
        return f"{error.override}: not an override; expected key=value, in Hydra's grammar ({detail})"
    if isinstance(error, MissingConfigException):
        return _missing_choice(error, overrides)
    choices, values = _parsed(overrides)
    wrong = {text: _wrong_choice(text, override, str(error)) for text, override in choices.items()}
    told = list(wrong.values())
    if base := _composed([text for text in choices if wrong[text] is None]):
        told += [_wrong_value(text, override, base) for text, override in values.items()]
        told.append(_wrong_in_file(error, base))
    told += [_unusual_choice(text, override) for text, override in choices.items()]
    return next((line for line in told if line is not None), _hydras_words(error))


def one_line(error: OmegaConfBaseException) -> str:
    """An OmegaConf error as one line that names the key."""
    first = str(error.msg or error).splitlines()[0]
    if first.startswith("Missing mandatory value"):
        return f"{error.full_key}: a value is needed"
    return f"{error.full_key}: {first}" if error.full_key and error.full_key not in first else first


def _hydras_words(error: BaseException) -> str:
    if isinstance(error, OmegaConfBaseException):
        return one_line(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        where = error.problem_mark
        return f"{where.name}, line {where.line + 1}: not YAML: {error.problem}"
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    cause = error.__cause__ or error.__context__
    return f"{first} {one_line(cause)}" if isinstance(cause, OmegaConfBaseException) else first


def _parsed(overrides: Sequence[str]) -> tuple[dict[str, Override], dict[str, Override]]:
    """Those that choose a file of a folder of ``conf/``, and those that set values."""
    choices: dict[str, Override] = {}
    values: dict[str, Override] = {}
    for text in overrides:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException:  # no override, but what belongs to one of Hydra's switches
            continue
        is_choice = bool(choices_of(override.key_or_group)) and not isinstance(override.value(), Mapping)
        (choices if is_choice else values)[text] = override
    return choices, values


# -- choices: task=nav ------------------------------------------------------------------------------------------------


def _missing_choice(error: MissingConfigException, overrides: Sequence[str]) -> str:
    missing = str(error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = missing.rpartition("/")
    if not group:
        return str(error).splitlines()[0]
    named = (text for text in overrides if text.lstrip("+").partition("=")[0].partition("@")[0] == group)
    return f"{next(named, f'{group}={name}')}: there is no such {group}{nearest(name, choices_of(group))}"


def _wrong_choice(text: str, override: Override, told: str) -> str | None:
    """``told``: Hydra's words. Which choice there has to be depends on its defaults lists."""
    group, value = override.key_or_group, override.value()
    names = value if isinstance(value, list) else [value]
    if told.startswith(f"Could not override '{group}'"):
        return f"{text}: a {group} is added to the config, with a plus: +{text}"
    if told.startswith(f"Multiple values for {group}."):
        return f"{text}: there is a {group} already; another is chosen without the plus: {text.lstrip('+')}"
    if override.is_delete() or (all(isinstance(name, str) for name in names) and names):
        return None
    return f"{text}: expected one of {', '.join(choices_of(group))}"


def _unusual_choice(text: str, override: Override) -> str | None:
    """None, or two at a time: not wrong in itself, but only few parts of the config can be so."""
    if isinstance(override.value(), str):
        return None
    group = override.key_or_group
    return f"{text}: expected {group}=<name>, with one of {', '.join(choices_of(group))}"


@dataclass(frozen=True)
class _Base:
    """The config that values are set in."""

    plain: Mapping[str, Any]
    settled: Mapping[str, Any]
    """See ``typed``."""


def _composed(chosen: Sequence[str]) -> _Base | None:
    """The config of these choices alone; of none, where they don't go together."""
    for overrides in (chosen, ()):
        try:
            plain: Any = OmegaConf.to_container(hydra.compose("config", overrides=list(overrides)), resolve=True)
            return _Base(plain, settled_by(tasks.get(plain["task"]["name"])))
        except Exception:  # told already, by whoever asks what is wrong with them
            continue
    return None


# -- values: seed=3 ---------------------------------------------------------------------------------------------------


def _wrong_value(text: str, override: Override, base: _Base) -> str | None:
    if override.is_hydra_override():
        return None
    key, plain, settled = override.key_or_group, base.plain, base.settled
    if empty := _null_above(key, plain):
        return f"{text}: {empty} is null, so there is nothing in it to change{_how_chosen(empty)}"
    kind = kind_at(Config, key, settled)
    known = list(entries(plain))
    if kind is None or (override.is_delete() and key not in known):
        return f"{text}: the config has no '{key}'{_near(key, known)}"
    if override.is_sweep_override():
        return f"{text}: expected {words(kind)}; what a search tries is told by +sweep=<name>"
    value = override.value()
    if override.is_delete() or any("${" in str(inner) for _, inner in flatten({key: value})):
        return None
    there = _at(plain, key)
    try:
        typed(kind, _merged(there, value), key, settled)
    except UserError as error:
        return str(error)
    if there is None and key in known and isinstance(value, Mapping) and kind is not Any:
        return f"{text}: {key} is null, so there is nothing in it to change{_how_chosen(key)}"
    new = [path for path in (key, *entries(value, key)) if path not in known]
    if new and not override.is_add() and not override.is_force_add():
        added = f"an entry that is not there yet is added with a plus: +{text}"
        return f"{text}: the config has no '{new[0]}'{_near(new[0], known)} ({added})"
    if override.is_add() and not new and there is not None and not isinstance(value, Mapping | list):
        return f"{text}: {key} is in the config already, and changed without the plus: {text.lstrip('+')}"
    return None


def _wrong_in_file(error: BaseException, base: _Base) -> str | None:
    file, inner = re.match(r"In '(.*)': \w+ raised while composing", str(error)), error.__context__
    if file is None or not isinstance(inner, OmegaConfBaseException) or not inner.full_key:
        return None
    kind = kind_at(Config, inner.full_key, base.settled)
    if kind is None:
        return f"{file[1]}.yaml: the config has no '{inner.full_key}'{_near(inner.full_key, list(entries(base.plain)))}"
    try:
        typed(kind, inner.value, inner.full_key, base.settled)
    except UserError as wrong:
        return f"{file[1]}.yaml: {wrong}"
    return None


def _near(key: str, known: Sequence[str]) -> str:
    """The nearest of the paths in the part of the config that a wrong one leads to."""
    part = max((path for path in known if key.startswith(f"{path}.")), key=len, default="")
    return nearest(key, [path for path in known if path.startswith(part and f"{part}.")])


def _null_above(key: str, plain: Mapping[str, Any]) -> str | None:
    """The path of something optional that is null, and that ``key`` would lie within."""
    return next((path for path, value in flatten(plain) if value is None and key.startswith(f"{path}.")), None)


def _how_chosen(path: str) -> str:
    group = path.replace(".", "/")
    choices = choices_of(group)
    name = choices[0] if len(choices) == 1 else "<name>"
    return f"; choose one with {'+' if group == 'sweep' else ''}{group}={name}" if choices else ""


def _at(plain: Mapping[str, Any], key: str) -> Any:
    node: Any = plain
    for name in key.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _merged(there: Any, value: Any) -> Any:
    """What stands there once a value has been merged into it."""
    if not (isinstance(there, Mapping) and isinstance(value, Mapping)):
        return value
    return {**there, **{name: _merged(there.get(name), inner) for name, inner in value.items()}}
