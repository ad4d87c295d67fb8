"""A command whose output nobody reads any more, as in ``… | head -1``, ends without a word."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

UNREAD = 141
"""The exit code of a command that ended for that: 128 and the number of SIGPIPE, which Python ignores."""


@contextmanager
def quiet_when_unread() -> Iterator[None]:
    """What is written here is flushed; SystemExit(``UNREAD``) where whoever read it has gone."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError as error:
        if not is_unread(error):
            raise
        with open(os.devnull, "wb") as nowhere:  # what is still held back is flushed again at exit
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise SystemExit(UNREAD) from None


def is_unread(error: BaseException) -> bool:
    """Whether the pipe that broke is the output, not one to another process."""
    if not isinstance(error, BrokenPipeError):
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
