"""All figures of one GPU in under five minutes: do the engines agree, how fast is a step and what takes its time, how
fast does the default config learn.

    .venv/bin/python tests/gpu/bench.py

Kernels that were never compiled on this machine are compiled first; that is not in the five minutes, nor in any figure.
"""

import argparse
import contextlib
import gc
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "navtask"))
sys.path.insert(0, str(Path(__file__).parents[1] / "navtask" / "physics"))

import mujoco_warp as mjw
import torch
import warp as wp
from throughput import default_config
from worlds import TOUCHED, Worlds, first_touch, random_ctrl

from navtask.nav.env import NavEnv
from orchestrator.job.curves import Curves
from orchestrator.job.runner import Runner

ROUNDS = 5
STEPS = 32


def synchronize(device: str) -> None:
    """Wait until the device has done what it was told."""
    if device != "cpu":
        torch.cuda.synchronize()


def seconds_of(call: Callable[[], object], device: str, before: Callable[[], object] = lambda: None) -> float:
    """Median over rounds of a call, each after ``before``; the first round is not counted."""
    times = []
    for _ in range(ROUNDS + 1):
        before()
        synchronize(device)
        started = time.perf_counter()
        call()
        synchronize(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def parity(device: str) -> None:
    """MuJoCo Warp on the device against MuJoCo C."""
    c, warp = Worlds("mujoco_c", 8), Worlds("mujoco_warp", 8, device=device)
    generator, apart = torch.Generator().manual_seed(0), 0.0
    for _ in range(250):
        ctrl = random_ctrl(8, generator)
        for there_and_back in (ctrl, -ctrl):  # so that nobody meets a wall
            c.drive(there_and_back)
            warp.drive(there_and_back)
            apart = max(apart, (c.qpos - warp.qpos).abs().max().item())
    print(f"free motion, 500 control steps: at most {apart:.1e} m or rad apart (asked: 1e-3)")
    for kind in TOUCHED:
        (when_c, where_c), (when_warp, where_warp) = (
            first_touch("mujoco_c", kind),
            first_touch("mujoco_warp", kind, device),
        )
        same, off = (when_c == when_warp).sum().item(), (where_c - where_warp).abs().max().item()
        print(f"first touch of a {kind} from eight sides: {same} of 8 in the same physics step, {off:.1e} m apart then")


class Speed:
    """One environment, and ways to time it."""

    def __init__(self, rooms: int, device: str):
        self.rooms, self.device = rooms, device
        task = default_config().task
        self.env = NavEnv(task, num_envs=rooms, seed=0, device=device, backend="mujoco_warp")
        self.env.spread_ages()
        generator = torch.Generator().manual_seed(0)
        self.actions = (torch.rand(STEPS, rooms, 3, generator=generator) * 2 - 1).to(device)
        self.substeps = round(task.control_dt / task.physics_dt)

    @torch.inference_mode()  # as in a training
    def step(self, graph: bool = True) -> float:
        """Seconds a full step."""
        self.env.cuda_graph = graph and self.device != "cpu"

        def steps() -> None:
            for actions in self.actions:
                self.env.step(actions)

        return seconds_of(steps, self.device) / STEPS

    @torch.inference_mode()
    def raw(self) -> float:
        """Seconds of the engine alone in a step: its ``step``, as often as physics steps make one, as a graph."""
        physics = self.env.physics
        with wp.ScopedDevice(physics._device), wp.ScopedCapture(device=physics._device) as capture:
            for _ in range(self.substeps):
                mjw.step(physics._model, physics._data)
        before = physics.state()

        def launches() -> None:
            for _ in range(8):
                wp.capture_launch(capture.graph)

        # From where the rooms are, again and again: robots that are never reset would all end up pressing on something.
        seconds = seconds_of(launches, self.device, before=lambda: physics.load(before)) / 8
        physics.load(before)
        return seconds


def speed(rooms: list[int], device: str) -> None:
    """Steps a second, and the engine's share."""
    columns = f"{'rooms':>7} {'steps/s':>12} {'ms a step':>10} {'raw mujoco_warp.step':>21} {'no graph, ms':>13}"
    print(f"\n{columns} {'GB used':>8}")
    for number in rooms:
        gc.collect()  # the one before
        measured = Speed(number, device)
        full, raw = measured.step(), measured.raw()
        eager = f"{measured.step(graph=False) * 1e3:13.2f}" if number == rooms[len(rooms) // 2] else f"{'':>13}"
        used = 0.0
        if device != "cpu":
            free, total = torch.cuda.mem_get_info()
            used = (total - free) / 2**30
        print(
            f"{number:7} {number / full:12,.0f} {full * 1e3:10.2f} {raw / full:21.0%} {eager} {used:8.1f}", flush=True
        )
        dropped = int(measured.env.physics.dropped)
        if dropped:
            print(f"        the engine dropped contacts {dropped} times")


def learning(seconds: float, device: str, overrides: list[str]) -> None:
    """Time to 95 % and 99 % on ``open`` with the default config, and the share of learning in an iteration."""
    config = default_config("evaluation.every=5", f"device={device}", *overrides)
    history: list[tuple[float, float]] = []
    learned: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            runner = Runner(config, seed=0, folder=Path(folder), threads=len(os.sched_getaffinity(0)))
        update = runner.algorithm.update

        def timed_update() -> dict[str, float]:
            synchronize(device)  # what was still being collected is not learning
            started = time.perf_counter()
            metrics = update()
            synchronize(device)
            learned.append(time.perf_counter() - started)
            return metrics

        runner.algorithm.update = timed_update  # type: ignore[method-assign]

        def enough() -> bool:
            if len(runner.evaluations) > len(history):
                history.append((runner.train_seconds, runner.evaluations[-1]["Eval/success_rate"]))
            return runner.train_seconds >= seconds or (history != [] and history[-1][1] >= 0.99)

        curves = Curves(Path(folder))
        with contextlib.redirect_stdout(io.StringIO()):
            runner.train(curves, enough)
        enough()
        curves.close()
    steps = config.num_envs * config.algorithm.num_steps_per_env * runner.iteration
    rate, graph = steps / runner.train_seconds, "on" if runner.env.cuda_graph else "off"
    print(f"\ntraining: {config.num_envs} rooms, {runner.iteration} iterations, {rate:,.0f} steps/s, graph {graph}")
    print(f"share of learning in an iteration: {sum(learned) / runner.train_seconds:.0%}")
    for goal in (0.95, 0.99):
        hit = next((t for t, success in history if success >= goal), None)
        print(
            f"{goal:.0%} of {config.evaluation.num_rooms} frozen rooms: " + (f"{hit:.1f} s" if hit else "not reached")
        )
    print("success by seconds: " + " ".join(f"{t:.0f}:{s:.3f}" for t, s in history[:: max(1, len(history) // 12)]))


def compile_all(rooms: list[int], device: str) -> None:
    """Every kernel once."""
    started = time.perf_counter()
    parity_worlds = Worlds("mujoco_warp", 8, device=device)
    parity_worlds.drive([0.1, 0.0, 0.0])
    for number in rooms:
        env = NavEnv(default_config().task, num_envs=number, seed=0, device=device, backend="mujoco_warp")
        env.cuda_graph = False
        env.step(torch.zeros(number, 3, device=device))
        synchronize(device)
    print(f"kernels compiled or found in {time.perf_counter() - started:.0f} s\n", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cpu tries the script out; its figures mean nothing")
    parser.add_argument("--rooms", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--minutes", type=float, default=4.5, help="training ends in time for this")
    parser.add_argument("overrides", nargs="*", help="of the training's config, as on the command line of orchestrator")
    arguments = parser.parse_args()
    device = arguments.device
    if device != "cpu" and not torch.cuda.is_available():
        sys.exit("error: there is no GPU here")
    torch.set_num_threads(1)
    wp.config.quiet = True
    card = torch.cuda.get_device_name() if device != "cpu" else "no GPU"
    print(f"{card}; torch {torch.__version__}, warp {wp.__version__}, CUDA {torch.version.cuda}")
    compile_all(arguments.rooms, device)
    started = time.perf_counter()
    parity(device)
    speed(arguments.rooms, device)
    left = 60 * arguments.minutes - (time.perf_counter() - started)
    learning(0.75 * left, device, arguments.overrides)  # a quarter for evaluations
    print(f"\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
