"""Runs whole drivers on fake jobs, here or in a process of their own that may be killed."""

import json
import multiprocessing.forkserver
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from orchestrator import plan
from orchestrator.config import Config, compose
from orchestrator.driver import Driver
from orchestrator.launch.local import LocalLauncher
from orchestrator.recording import NoRecorder
from orchestrator.status import Status

PRELOAD = ("orchestrator.record.wal", "orchestrator.job.spec", "fake_jobs")
SWEEP = (
    "+sweep=reward_weights",
    "sweep.name=study",
    "tracking.uri=null",
    "algorithm.iterations=8",
    "evaluation.every=2",
    "sweep.pruner=null",
    "confirm.top_k=0",
)


def configure(output: Path, *overrides: str) -> Config:
    return compose(*overrides, f"output_dir={output}")


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
    """`behave(folder, all={"seconds": 0.1}, _2={"do": "crash"}, seed_3={"success": 0.1})`"""
    folder.mkdir(parents=True, exist_ok=True)
    told = {name.lstrip("_").replace("_", " "): what for name, what in trials.items()}
    (folder / "fake.json").write_text(json.dumps(told))


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
    return compose(f"hydra.searchpath=[file://{study}]", "+best=config", f"output_dir={output}")


def study_trials(folder: Path) -> list[optuna.trial.FrozenTrial]:
    storage = f"sqlite:///{folder / 'study.db'}"
    return optuna.load_study(study_name=folder.name, storage=storage).get_trials()


def states(folder: Path) -> str:
    return "".join(t.state.name[0] for t in study_trials(folder))  # C(omplete) F(ail) P(runed) R(unning)


def sweep(output: Path, *overrides: str, screen: Quiet | None = None) -> Driver:
    return driver(configure(output, *SWEEP, *overrides), screen)


class Recorded:
    """A recorder that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.names: dict[str, str] = {}

    def start_study(self, uid: str, name: str, **_: object) -> None:
        self.calls.append(("study", name))

    def start_trial(self, key: str, folder: Path, uid: str, *, name: str, **details: object) -> None:
        self.names[key] = name
        self.calls.append(("start", name))

    def end_trial(self, key: str, outcome: str, **details: object) -> None:
        self.calls.append(("end", self.names[key], outcome))

    def update_study(self, **details: Any) -> None:
        self.calls.append(("update", details))

    def name_champion(self, key: str, model: str, why: str) -> None:
        self.calls.append(("champion", self.names[key], model))

    def withdraw_champion(self, model: str) -> None:
        self.calls.append(("no champion", model))

    def run_id(self, key: str) -> str:
        return f"id of {self.names[key]}"

    def close(self, outcome: str, timeout: float, **_: object) -> None:
        self.calls.append(("close", outcome))
