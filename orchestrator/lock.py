"""One driver at a time on a folder."""

import fcntl
import json
import os
import time
from pathlib import Path

from orchestrator.errors import UserError


class FolderLock:
    """Held from construction until ``release`` or the process's death, however it dies: the kernel keeps it.

    The file says who holds it, for people.
    """

    def __init__(self, path: Path, what: str) -> None:
        """Take the lock. Raises UserError naming who has it; nothing is changed then."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(self._fd)
            os.close(self._fd)
            raise UserError(f"{what} is being run already, by {holder}; wait for it, or end it first") from None
        me = {"pid": os.getpid(), "host": os.uname().nodename, "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(me).encode(), 0)

    def release(self) -> None:
        """Let the next one in."""
        os.close(self._fd)


def _holder(fd: int) -> str:
    try:
        who = json.loads(os.pread(fd, 4096, 0))
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (ValueError, KeyError):
        return "another process"
