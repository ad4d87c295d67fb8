"""What the commands beside ``python -m orchestrator`` share: ``key=value`` arguments, and mistakes told in one line."""

import sqlite3
import sys
from collections.abc import Callable, Collection, Iterator, Sequence

from navtask.stdout import is_unread, quiet_when_unread
from orchestrator.config import PROJECT
from orchestrator.errors import UserError, nearest
from orchestrator.files import DISK_FULL
from orchestrator.job.spec import from_yaml
from orchestrator.record.redact import redact
from orchestrator.record.store import check_uri, resolve_uri


class Arguments:
    """``key=value`` arguments and ``--flags`` of a command line. Raises UserError for any that isn't known."""

    def __init__(
        self,
        arguments: Sequence[str],
        keys: Sequence[str],
        *,
        flags: Sequence[str] = (),
        repeatable: Collection[str] = (),
    ) -> None:
        self.pairs: list[tuple[str, str]] = []
        """In their order."""
        self.flags: set[str] = set()
        for argument in arguments:
            if argument.startswith("-"):
                if argument not in flags:
                    raise UserError(f"{argument}: no such option{nearest(argument, (*flags, '--help'))}")
                self.flags.add(argument)
                continue
            key, equals, value = argument.partition("=")
            if not equals or not value:
                raise UserError(f"{argument}: expected key=value, with {', '.join(keys)}")
            if key not in keys:
                raise UserError(f"{argument}: no such key{nearest(key, keys)}")
            if key not in repeatable and self.get(key) is not None:
                raise UserError(f"{argument}: given twice")
            self.pairs.append((key, value))

    def get(self, key: str, default: str | None = None) -> str | None:
        """The value of a key."""
        return dict(self.pairs).get(key, default)

    def need(self, key: str, what: str) -> str:
        """The value of a key that must be there. Raises UserError."""
        value = self.get(key)
        if value is None:
            raise UserError(f"{key}: expected {key}=<{what}>")
        return value

    def tracking_uri(self) -> str:
        """Where MLflow's runs are: ``tracking.uri``, or the store of ``conf/``. Raises UserError."""
        uri = self.get("tracking.uri")
        if uri is None:
            uri = str(from_yaml((PROJECT / "conf" / "tracking" / "mlflow.yaml").read_text())["uri"])
        check_uri(uri)
        return resolve_uri(uri, PROJECT)


@quiet_when_unread()
def run(
    command: Callable[[Sequence[str]], int], description: str | None, arguments: Sequence[str] | None = None
) -> int:
    """Run a command on its arguments, this process's if none are given; ``--help`` shows its description.

    Returns its exit code, 1 for what went wrong and 2 for a user's mistake, both told in one line.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        print(description)
        return 0
    try:
        return command(arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return tell(error)


def tell(error: Exception) -> int:
    """Say what went wrong, in one line; returns the exit code.

    Raises an error that nobody has reckoned with, and one that needs no words, see ``quiet_when_unread``.
    """
    if is_unread(error):
        raise error
    if isinstance(error, UserError):
        say(error)
        return 2
    from optuna.exceptions import OptunaError  # not every command has imported them
    from sqlalchemy.exc import SQLAlchemyError

    # A full disk, no fork server, a database that is locked or damaged: it may be nobody's mistake.
    if not isinstance(error, OSError | RuntimeError | OptunaError | SQLAlchemyError):
        raise error
    say(_root(error) or error)
    return 1


def _root(error: BaseException) -> str | None:
    """What the system or SQLite said, where a library has wrapped it in words of its own; a note says of which file."""
    where = next((f"{note}: " for e in _chain(error) for note in getattr(e, "__notes__", ())), "")
    for inner in _chain(error):
        if isinstance(inner, OSError) and inner.errno in DISK_FULL:
            return f"the disk is full: {inner}; with space again, the same command goes on where it stopped"
        if isinstance(inner, sqlite3.Error):
            name = getattr(inner, "sqlite_errorname", "")  # of what SQLite itself said
            if name == "SQLITE_FULL":
                return f"the disk is full: {where}{inner}; with space again, the same command goes on where it stopped"
            if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                return f"{where}{inner}: another process is writing to it; the same command goes on where it stopped"
            return f"{where}{inner}"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def say(error: object, kind: str = "error") -> None:
    """An error, or something else of that ``kind``, for people: one line, without credentials."""
    print(f"{kind}: {redact(' '.join(str(error).split()))}", file=sys.stderr)
