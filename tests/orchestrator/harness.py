"""Runs whole drivers on fake jobs, here or in a process of their own that may be killed."""

import json
import multiprocessing.forkserver
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from orchestrator import plan
from orchestrator.__main__ import CONF
from orchestrator.config import Config, from_composed
from orchestrator.driver import Driver, NoRecorder
from orchestrator.launch.local import LocalLauncher
from orchestrator.status import Status

PRELOAD = ("orchestrator.record.wal", "orchestrator.job.spec", "fake_jobs")
SWEEP = (
    "+sweep=reward_weights",
    "sweep.name=study",
    "tracking.uri=null",
    "algorithm.iterations=8",
    "evaluation.every=2",
    "sweep.pruner=null",
)


def configure(output: Path, *overrides: str) -> Config:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return from_composed(compose("config", overrides=[*overrides, f"output_dir={output}"]))


class Quiet:
    """A screen that only remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.on_show: Callable[[Status], None] = lambda status: None

    def show(self, status: Status) -> None:
        self.on_show(status)

    def note(self, line: str) -> None:
        self.notes.append(line)

    def close(self) -> None:
        pass


def launcher(config: Config, entry: str = "fake_jobs:train") -> LocalLauncher:
    return LocalLauncher(config.launcher, config.device, config.sweep is None, entry=entry, preload=PRELOAD, warm=None)


def driver(config: Config, screen: Any = None, recorder: Any = None) -> Driver:
    made = plan.make(config)
    return Driver(config, made.search, launcher(config), lambda tell: recorder or NoRecorder(), screen or Quiet(), {})


def behave(folder: Path, **trials: dict[str, Any]) -> None:
    """`behave(folder, all={"seconds": 0.1}, _2={"do": "crash"})`"""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fake.json").write_text(json.dumps({name.lstrip("_"): what for name, what in trials.items()}))


def forked(function: Callable[[], int]) -> int:
    """Run in a child process, which has a fork server of its own. Returns its pid."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        server = multiprocessing.forkserver._forkserver
        server._forkserver_pid = server._forkserver_alive_fd = server._forkserver_address = None
        code = function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int:
    """Exit code of a forked process; minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def configure_best(output: Path, study: Path) -> Config:
    """What `--config-dir <study> +best=config` composes."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        search_path = f"hydra.searchpath=[file://{study}]"
        return from_composed(compose("config", overrides=[search_path, "+best=config", f"output_dir={output}"]))
