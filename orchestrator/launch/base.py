"""The contract of launchers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config import LauncherConfig

JOB = "orchestrator.job.run:run_trial"
"""What a job runs: ``function(folder) -> exit code``. It raises UserError for what would go wrong again."""


MISTAKE = 2
"""Exit code of a job whose function raised UserError."""


@dataclass(frozen=True)
class Exit:
    """How a job's process ended. Whether its trial has finished is told by ``result.json`` alone."""

    code: int | None
    """Exit code; None when a signal ended it."""
    signal: int | None
    """The signal that ended it, or None."""
    reason: str
    """For people: ``killed by SIGKILL (out of memory)``, ``exit code 1: <last line of its log>``; the words of a
    mistake."""


Handle = Any
"""One started job; belongs to the launcher that made it."""


class Launcher(ABC):
    """Runs jobs, each in a trial's folder. Used from one thread.

    What every launcher promises:

    * ``start`` returns at once. At most ``slots`` jobs are live at a time; whoever starts more is refused.
    * A folder has at most one live job, whichever launcher or driver started it: a job that finds another still at
      work there (its driver died, it is writing a checkpoint) waits for it, and ends it where it doesn't end by itself.
    * A job that finds ``result.json`` has nothing to do, and exits with 0.
    * ``poll`` returns None while the job lives, then for ever the same ``Exit``. Once it has returned one, no process
      of the job is left.
    * What a job's UserError says is the ``reason`` of its ``Exit``, whose code is MISTAKE.
    * ``stop`` asks the job to checkpoint and end, and ends its processes by force once ``grace`` seconds are over;
      it returns at once, may be repeated with a shorter grace, and does nothing to a job that has ended.
    * When the driver dies, however it dies, its jobs are asked to end as by ``stop``.
    * A terminal's Ctrl-C reaches no job; the driver decides.
    * What a job prints is in ``job.log`` in its folder.
    * After ``close`` no job is left.
    """

    slots: int
    """Jobs at a time."""
    where: str
    """For people: ``2 at a time, 1 core each``."""

    @abstractmethod
    def __init__(self, config: LauncherConfig, device: str, single: bool, entry: str = JOB) -> None:
        """``single``: there is one job only, it may have everything."""

    def ready(self) -> bool:
        """Whether ``start`` may be called; the first call begins getting there. RuntimeError: that will never be."""
        return True

    @abstractmethod
    def start(self, folder: Path) -> Handle:
        """Run the trial in ``folder``."""

    @abstractmethod
    def poll(self, handle: Handle) -> Exit | None:
        """How the job ended; None while it lives."""

    @abstractmethod
    def stop(self, handle: Handle, grace: float) -> None:
        """Ask the job to end, and see to it that it does."""

    def sentinels(self) -> Sequence[Any]:
        """What ``multiprocessing.connection.wait`` can wait on, ready when a job has ended; nothing: poll."""
        return ()

    @abstractmethod
    def close(self) -> None:
        """End all jobs at once."""
