"""A job of several processes: torchrun's agent runs where a job of one would, and forks them."""

import multiprocessing
import os
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from orchestrator.errors import UserError
from orchestrator.launch.base import MISTAKE

CAUSE_FIRST = 1.0
"""Seconds that an exception waits before it ends its process. The death of one process is an exception in the others;
the agent, which looks ten times a second, is to find the one that was the cause."""


def run(function: Callable[[Path], int], folder: Path, nproc_per_node: int) -> int:
    """``function(folder)`` in so many processes, which find one another as under the command ``torchrun``.

    Returns the exit code. When one fails the others are ended; nothing is started again, for that is the driver's.
    Where a signal killed a process, this one dies of it too, so that whoever started it learns of the signal.
    """
    told = multiprocessing.get_context("fork").SimpleQueue()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=nproc_per_node,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        start_method="fork",  # all is imported, and no device touched
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
    )
    try:
        elastic_launch(config, _process)(function, folder, told)
    except SignalException as stopped:
        return 128 + int(stopped.sigval)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        sys.stderr.flush()
        if failure.exitcode < 0:
            print(f"process {rank} of {nproc_per_node}: killed by {signal.Signals(-failure.exitcode).name}", flush=True)
            _die_of(-failure.exitcode)
        while not told.empty():
            teller, line = told.get()
            if teller == rank:
                print(line, flush=True)
        return failure.exitcode
    return 0


def _process(function: Callable[[Path], int], folder: Path, told: Any) -> int:
    """What each process runs. The agent takes whoever returns for one that has succeeded, and lets it wait for all."""
    rank = int(os.environ["RANK"])
    try:
        code = function(folder)
    except UserError as error:
        told.put((rank, f"error: {error}"))
        code = MISTAKE
    except Exception as error:
        traceback.print_exc()
        told.put((rank, f"{type(error).__name__}: {error}"))
        time.sleep(CAUSE_FIRST)
        code = 1
    _end_children()
    if code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _end_children() -> None:
    """What this process has started holds on to the pipe by whose closing the agent learns of an end."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _die_of(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(10)  # until it is delivered
