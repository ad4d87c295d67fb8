"""Files that anybody may have damaged meanwhile, read with care: each fault is one line that names the file."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]

from orchestrator.errors import UserError

T = TypeVar("T")

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where nothing more can be written: no space, the user's quota, the largest size of a file."""


class Damaged(UserError):
    """A file is not what it should be."""

    def __init__(self, path: Path, why: str) -> None:
        """``why`` says what was expected, or what is wrong with it."""
        super().__init__(f"{path}: damaged: {why}")
        self.path, self.why = path, why


def read(path: Path, parse: Callable[[str], Any], expected: str) -> Any:
    """What ``parse`` makes of a text file. ``expected``: what that is, for people.

    Raises FileNotFoundError or NotADirectoryError where there is none, Damaged for anything else.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if not text.strip():
            raise Damaged(path, f"expected {expected}, it is empty")
        return parse(text)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except IsADirectoryError as error:
        raise Damaged(path, f"expected {expected}, found a folder") from error
    except OSError as error:
        raise Damaged(path, f"expected {expected}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Damaged(path, f"expected {expected}, it is no text") from error
    except RecursionError as error:
        raise Damaged(path, f"expected {expected}, it is nested too deeply") from error
    except (ValueError, yaml.YAMLError) as error:
        raise Damaged(path, f"expected {expected}: {str(error).splitlines()[0]}") from error


def read_mapping(path: Path, parse: Callable[[str], Any], expected: str) -> dict[str, Any]:
    """Likewise, of a file that holds a mapping."""
    found = read(path, parse, f"a mapping in {expected}")
    if not isinstance(found, dict):
        raise Damaged(path, f"expected a mapping in {expected}, found a {type(found).__name__}")
    return found


class Careful:
    """Goes on where a file is damaged, and remembers it."""

    def __init__(self) -> None:
        self._damaged: dict[str, UserError] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Leave what is inside when something can't be read."""
        try:
            yield
        except UserError as error:
            self.note(error)

    def note(self, error: UserError) -> None:
        """Remember it."""
        self._damaged[str(error)] = error

    def read(self, function: Callable[[Path], T], path: Path) -> T | None:
        """What ``function`` reads there; None where there is nothing, or nothing that could be read."""
        with self.noting(), suppress(FileNotFoundError, NotADirectoryError):
            return function(path)
        return None

    def why_not(self, path: Path) -> str | None:
        """Why a file could not be read; None where it could be, or is not there."""
        damaged = (error for error in self._damaged.values() if isinstance(error, Damaged))
        return next((error.why for error in damaged if error.path == path), None)

    @property
    def lines(self) -> list[str]:
        """All that could not be read, each once."""
        return list(self._damaged)
