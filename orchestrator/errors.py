"""How a user's mistake is told: one line, exit code 2."""

import difflib
from collections.abc import Iterable, Mapping

from navtask.errors import ConfigError, MissingValue, UnknownKey


class UserError(Exception):
    """A mistake that the user can mend. ``str(error)`` is the one line that is shown; there is no traceback."""


def as_user_error(error: ConfigError) -> UserError:
    """What a task objects to, told as every other mistake."""
    word, known = error.key.rpartition(".")[2], error.candidates  # of keys where one is wrong, else of values
    if isinstance(error, UnknownKey | MissingValue):
        return UserError(f"{error}{nearest(word, known)}")
    hint = did_you_mean(word, known) or did_you_mean(error.value, known)
    if not hint and not all(name in error.expected for name in known):
        hint = nearest(word, known)
    return UserError(f"{error.key}={shown(error.value)}: expected {error.expected}{hint}")


def shown(value: object) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def nearest(word: object, candidates: Iterable[object]) -> str:
    """The end of an error line: the nearest valid word, or the list of them where it is short, or nothing.

    >>> nearest("dens", ["open", "dense"])
    "; did you mean 'dense'?"
    """
    known = sorted({str(candidate) for candidate in candidates})
    listed = f"; known: {', '.join(known)}" if 0 < len(known) <= 20 else ""
    return did_you_mean(word, known) or listed


def did_you_mean(word: object, candidates: Iterable[object]) -> str:
    """The same for a line that lists what is valid already: the nearest word, or nothing."""
    close = difflib.get_close_matches(str(word), sorted({str(c) for c in candidates}), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""
