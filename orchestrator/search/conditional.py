"""The conditional part of a search space: a function of the user's, called with care."""

import importlib
import inspect
import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import optuna

from orchestrator.errors import UserError, shown
from orchestrator.record.fields import flatten

SpaceFunction = Callable[[optuna.Trial, dict[str, Any]], Mapping[str, Any]]


class Conditional:
    """``sweep.space``: sees the trial and what was drawn so far, returns further {config path: value}."""

    def __init__(self, name: str) -> None:
        """``name`` is ``pkg.mod.function``. Raises UserError where there is none that takes (trial, params)."""
        self.key = f"sweep.space={name}"
        expected = f"{self.key}: expected pkg.mod.function(trial, params)"
        module, _, attribute = name.rpartition(".")
        try:
            self._function: SpaceFunction = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # whatever a module of the user's raises when it is imported
            raise UserError(f"{expected} ({_one_line(error)})") from error
        try:
            inspect.signature(self._function).bind(None, {})
        except (TypeError, ValueError) as error:  # not callable, or by other arguments, or nobody knows by which
            raise UserError(f"{expected} ({_one_line(error)})") from error

    def __call__(self, trial: optuna.Trial, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """What it returns, of nested mappings their leaves. Raises UserError where that is no {path: value}."""
        try:
            returned = self._function(trial, dict(drawn))
        except Exception as error:
            raise UserError(f"{self.key} raised {_one_line(error)}{self._where(error)}") from error
        if not isinstance(returned, Mapping) or not all(isinstance(path, str) for path in returned):
            raise UserError(f"{self.key} returned {shown(returned)}: expected {{config path: value}}")
        values = dict(flatten(returned))
        for path, value in values.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                raise UserError(f"{self.key} sets {path} to a {kind}: expected a number, text or list") from None
        return values

    def _where(self, error: Exception) -> str:
        """The line in the function's own file that led to an error."""
        file = getattr(inspect.unwrap(self._function), "__code__", None)
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if file is not None and f.filename == file.co_filename]
        return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
