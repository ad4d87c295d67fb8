"""From a trial's folder to its result: signals, resumption, failure, and the files that are left."""

import contextlib
import json
import os
import signal
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from navtask.errors import ConfigError, TermError
from navtask.replay import draw_picture, make_video
from orchestrator.errors import UserError, as_user_error
from orchestrator.job import spec
from orchestrator.job.curves import Curves
from orchestrator.job.distributed import Processes, join
from orchestrator.job.export import export_policy
from orchestrator.job.runner import Diverged, Runner
from orchestrator.job.trace import write_trace

EXIT_FINISHED, EXIT_FAILED = 0, 1

MACHINE = (OSError, MemoryError, RuntimeError)
"""What may be the machine's fault, a GPU's among it, and may go well another time. Other exceptions are the code's."""


class _Signals:
    """Remembers the first SIGTERM or SIGINT; the training ends after the iteration that is under way.

    Of several processes all stop when one was told to.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.received: int | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number

    def __call__(self) -> bool:
        self.received = self._processes.max(self.received or 0) or None
        return self.received is not None


def run_trial(folder: Path) -> int:
    """Train the trial of ``folder``, or go on from its last checkpoint. Returns the exit code.

    0 finished and 1 failed leave a ``result.json``; 130 and 143 (SIGINT, SIGTERM) leave a checkpoint to go on from.
    Started by torchrun, several processes do this together, and the first alone writes. Raises UserError for what would
    go wrong again: a term or a checkpoint that doesn't belong to this config, a term that fails.
    """
    trial = spec.read(folder)
    if (trial.folder / spec.RESULT).exists():
        return EXIT_FINISHED  # nothing is left to do
    with contextlib.chdir(trial.folder), contextlib.ExitStack() as stack:  # MuJoCo logs into the working directory
        processes = join(trial.config.device)
        stack.callback(processes.close)
        if not processes.main:  # one process tells
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        try:
            return _run(trial, processes)
        except ConfigError as error:
            raise as_user_error(error) from error
        except (UserError, *MACHINE):
            raise
        except Exception as error:
            traceback.print_exc()
            told = str(error) if isinstance(error, TermError) else f"{type(error).__name__}: {error}"
            raise UserError(f"{told}; see job.log") from error


def _run(trial: spec.TrialSpec, processes: Processes) -> int:
    stop = _Signals(processes)
    # Networks this small gain nothing from a second thread, physics does; the launcher says which cores are ours.
    torch.set_num_threads(1)
    threads = max(1, len(os.sched_getaffinity(0)) // processes.local_world_size)
    with processes.main_first():
        runner = Runner(trial.config, seed=trial.seed, folder=trial.folder, threads=threads, processes=processes)
    resumed = runner.resume()
    if resumed:
        print(f"going on from iteration {runner.iteration}", flush=True)
    curves = Curves(trial.folder, resume_step=runner.iteration if resumed else None) if processes.main else None
    try:
        finished = runner.train(curves, stop)
    except Diverged as error:
        print(f"diverged: {error}", flush=True)
        _write_result(runner, "failed", f"diverged: {error}", processes)
        return EXIT_FAILED
    finally:
        if curves is not None:
            curves.close()
    if not finished:
        assert stop.received is not None
        print(f"interrupted by {signal.Signals(stop.received).name} after iteration {runner.iteration}", flush=True)
        return 128 + stop.received
    if processes.main:
        _export(trial, runner)
    _write_result(runner, "finished", None, processes)
    return EXIT_FINISHED


def _export(trial: spec.TrialSpec, runner: Runner) -> None:
    algorithm = trial.config.algorithm
    write_trace(trial.folder, runner.kl, runner.learning_rate, (algorithm.desired_kl, algorithm.desired_kl_end))
    policy = trial.config.policy
    told = runner.env.interface() if policy.obs_groups["actor"] == ["policy"] else None
    export_policy(runner.algorithm.get_policy(), policy.activation, policy.distribution, told, trial.folder)
    try:
        if replays := runner.replays():
            draw_picture(replays, trial.folder / "trajectories.png")
            view = make_video(replays, trial.folder / "replay.mp4", size=240)
            print(f"replay.mp4 shows {len(replays)} episodes ({view} view)", flush=True)
    except Exception as error:  # a codec that isn't there is no reason to fail a training that has ended
        print(f"no replay: {type(error).__name__}: {error}", flush=True)


def _write_result(runner: Runner, status: str, reason: str | None, processes: Processes) -> None:
    """``eval_rooms.npz`` and then, last of all files, ``result.json``; called in all processes, written in one."""
    failures = processes.total(runner.env.drawing_failures)
    if not processes.main:
        return
    config = runner.config
    if status == "finished":
        _write_rooms(runner)
    result = {
        "status": status,
        "reason": reason,
        "ended": round(time.time(), 3),
        "iterations": runner.iteration,
        "env_steps": runner.iteration * config.num_envs * config.algorithm.num_steps_per_env,
        "train_seconds": round(runner.train_seconds, 3),
        "evaluations": runner.evaluations,
        "room_drawing_failures": round(failures),
    }
    spec.write_aside(runner.folder / spec.RESULT, _json(result))


def _write_rooms(runner: Runner) -> None:
    """``eval_rooms.npz``: ``step`` (E,), and each metric of each of the E evaluations in each room of the run's own set
    (E, rooms), nan where a room has none. So runs can be compared room by room."""
    arrays = {"step": np.array([evaluation["step"] for evaluation in runner.evaluations], dtype=np.int64)}
    arrays |= {name: np.stack([rooms[name].numpy() for rooms in runner.rooms]) for name in runner.rooms[0]}
    aside = runner.folder / f".eval_rooms.{os.getpid()}"
    with open(aside, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    os.replace(aside, runner.folder / spec.ROOMS)


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1) + "\n"
