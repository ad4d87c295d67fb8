"""What the commands beside ``python -m orchestrator`` share: ``key=value`` arguments, and mistakes told in one line."""

import sys
from collections.abc import Callable, Sequence

from orchestrator.errors import UserError, nearest
from orchestrator.record.redact import redact

EXPECTED = (OSError, RuntimeError)
"""What can go wrong without anybody's mistake: a full disk, a database that is locked, no fork server."""


def key_values(arguments: Sequence[str], keys: Sequence[str]) -> list[tuple[str, str]]:
    """``key=value`` arguments in their order, each key one of ``keys``. Raises UserError."""
    given = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not value:
            raise UserError(f"{argument}: expected key=value, with {', '.join(keys)}")
        if key not in keys:
            raise UserError(f"{argument}: no such key{nearest(key, keys)}")
        given.append((key, value))
    return given


def exit_code(command: Callable[[], int]) -> int:
    """Run a command: its own exit code, or 1 for what went wrong and 2 for a user's mistake, in one line."""
    try:
        return command()
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        say(error)
        return 2
    except EXPECTED as error:
        say(error)
        return 1


def say(error: object) -> None:
    """An error for people: one line, without credentials."""
    print(f"error: {redact(' '.join(str(error).split()))}", file=sys.stderr)
