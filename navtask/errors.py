"""What this package raises when it is asked for something impossible."""

import traceback
from collections.abc import Iterable
from pathlib import Path


class ConfigError(ValueError):
    """A setting that cannot be: names the key, the value and what was expected.

    ``candidates`` are the values that would have been valid, for whoever wants to name the nearest one.
    """

    def __init__(self, key: str, value: object, expected: str, candidates: Iterable[str] = ()):
        self.key = key
        self.value = value
        self.expected = expected
        self.candidates = tuple(candidates)
        super().__init__(f"{key}={value!r}: expected {expected}")


class UnknownKey(ConfigError):
    """A setting that nobody asks for; ``candidates`` are those beside it that somebody does."""

    def __init__(self, key: str, value: object, known: Iterable[str]):
        super().__init__(key, value, "nothing", known)
        self.args = (f"{key}: no such key",)


class MissingValue(ConfigError):
    """A setting that somebody must give."""

    def __init__(self, key: str):
        super().__init__(key, None, "a value")
        self.args = (f"{key}: a value is needed",)


class TermError(Exception):
    """A registered term that did not do what it must: names it, and where its code went wrong."""

    def __init__(self, kind: str, name: str, wrong: str):
        super().__init__(f"{kind} term '{name}' {wrong}")

    @classmethod
    def raised(cls, kind: str, name: str, error: Exception) -> "TermError":
        """For an exception that has just come out of the term's function."""
        _, *frames = traceback.extract_tb(error.__traceback__)
        where = f" ({Path(frames[0].filename).name}:{frames[0].lineno})" if frames else ""
        told = " ".join(str(error).split())
        return cls(kind, name, f"raised {type(error).__name__}: {told}{where}")
