"""An exception that came out of a check: whose fault it is, and in which words that is told."""

import sys
import traceback
from pathlib import Path

import tensordict
import torch

from navtask.doctor.finding import CRASHED, FAIL, UNKNOWN, Outcome
from navtask.errors import TermError

DOCTOR = Path(__file__).parent
LIBRARIES = tuple(Path(str(library.__file__)).parent for library in (torch, tensordict))
"""Where an exception may surface that whoever called them is to blame for."""
LONGEST = 160


class NotAVecEnv(Exception):
    """An environment lacks something that rsl_rl's VecEnv has; says what."""


class NoOther(Exception):
    """No other environment can be made beside or after the first; says why."""


def outcome(error: Exception) -> Outcome:
    """A fault where the environment's own code raised, or it isn't what it must be. Else the check itself crashed."""
    if isinstance(error, NoOther):
        return UNKNOWN, str(error)
    if isinstance(error, NotAVecEnv):
        return FAIL, str(error)
    frames = traceback.extract_tb(error.__traceback__)
    last = max((k for k, frame in enumerate(frames) if DOCTOR in Path(frame.filename).parents), default=-1)
    theirs = any(not _of_a_library(frame.filename) for frame in frames[last + 1 :])
    return (FAIL, f"the environment raises {told(error)}") if theirs else (CRASHED, f"the check raises {told(error)}")


def told(error: Exception) -> str:
    """One line: type, words, and file and line where it arose."""
    words = " ".join(str(error).split())
    words = words if len(words) <= LONGEST else f"{words[:LONGEST]}…"
    if isinstance(error, TermError):  # tells of itself where it arose
        return f"{type(error).__name__}: {words}"
    return f"{type(error).__name__}: {words}, at {where(error)}"


def where(error: Exception) -> str:
    """``file:line`` of the innermost code that is no library's, as it would be imported."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if not _of_a_library(frame.filename)), frames[-1])
    file = Path(frame.filename)
    roots = (Path(entry).resolve() for entry in sys.path)
    root = max((root for root in roots if root in file.parents), key=lambda root: len(root.parts), default=None)
    return f"{file.relative_to(root) if root is not None else file}:{frame.lineno}"


def _of_a_library(file: str) -> bool:
    return any(library in Path(file).parents for library in LIBRARIES)
