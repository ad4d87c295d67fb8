"""How a user's mistake is told: one line, exit code 2."""

import difflib
from collections.abc import Iterable

from navtask.errors import ConfigError


class UserError(Exception):
    """A mistake that the user can mend. ``str(error)`` is the one line that is shown; there is no traceback."""


def as_user_error(error: ConfigError) -> UserError:
    """What a task objects to, told as every other mistake."""
    known = nearest(error.key.rpartition(".")[2], error.candidates)
    return UserError(f"{error.key}={error.value}: expected {error.expected}{known}")


def nearest(word: object, candidates: Iterable[object]) -> str:
    """The end of an error line: the nearest valid word, or the list of them where it is short, or nothing.

    >>> nearest("dens", ["open", "dense"])
    "; did you mean 'dense'?"
    """
    known = sorted({str(candidate) for candidate in candidates})
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    if known and len(known) <= 20:
        return f"; known: {', '.join(known)}"
    return ""
