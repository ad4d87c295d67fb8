"""How fast the environment steps, and what it is compared with; all figures are ratios from one run.

Without an option, the full environment step against bare physics. Full: lidar, ends, rewards, resets with new rooms,
observation. Bare: ``mujoco.batch`` as it comes, stepping the same rooms under the same commands and computing
kinematics and contacts of the new state, nothing else. At its fastest: without the latter, and with an MjData kept for
each room.

``--growth``: what a step costs in many rooms, against few. ``--trainings``: two trials at once with a core each,
against one with both. ``--peers``: the full step against the same task in other libraries, those that
``peers/install.py`` has installed.

What is compared takes turns, so a drift of the machine's speed cancels out.

    .venv/bin/python tests/benchmarks/throughput.py [--growth | --trainings | --peers]
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import mujoco
import torch
from mujoco.batch import Batch
from peers.install import installed, interpreter
from peers.turns import Turns

from navtask.nav.env import NavEnv
from navtask.nav.scene import build_model, first_obstacle_geom
from orchestrator.config import Config, compose
from orchestrator.job.runner import Runner

STEPS = 32
GROWTH = (256, 1024, 4096)
PEERS = {  # what it is: its environment, its script's arguments, how many times as fast we are asked to be
    "mjlab on the CPU": ("mjlab", [], 14),
    "PyBullet, four processes": ("pybullet", [], 22),
    "SubprocVecEnv, four processes": ("sb3", ["--processes", "4"], 14),
    # More than there are cores: those that wait for the others' turn don't keep a core waiting. It gets no faster.
    "SubprocVecEnv, sixteen processes": ("sb3", ["--processes", "16"], 14),
}
TURN = 3.0  # seconds that a peer is measured before the next takes its turn
TRAINING_TURN = 8.0


def default_config(*overrides: str) -> Config:
    """The project's own config."""
    return compose("device=cpu", *overrides)


class Bare:
    """The rooms of an environment, stepped by the engine alone."""

    def __init__(self, env: NavEnv, threads: int, *, fastest: bool):
        config = env.config
        model = build_model(config.rooms, config.physics_dt)
        self.batch = Batch(model, nsim=env.num_envs, nthread=threads, persistent=fastest)
        self._stage = (mujoco.mjtStage.mjSTAGE_NONE if fastest else mujoco.mjtStage.mjSTAGE_VEL).value
        first, geoms = first_obstacle_geom(model), env._geoms
        for name, values in (("geom_pos", geoms.pos), ("geom_size", geoms.size), ("geom_quat", geoms.quat)):
            self.batch.expand(name)[:, first : first + values.shape[1]] = values.numpy()
        self.batch.set_const()
        self.batch.bind("qpos")[:] = env.rooms.start.numpy()
        self.ctrl = self.batch.bind("ctrl")
        self.contacts = self.batch.bind("ncon")
        self.substeps = round(config.control_dt / config.physics_dt)
        self.start = self.batch.state.copy()

    def restart(self) -> None:
        """Back to the start: nothing is reset here, and robots pressing on obstacles cost more than driving ones."""
        self.batch.state[:] = self.start

    def step(self, ctrl: torch.Tensor) -> None:
        """One control step."""
        self.ctrl[:] = ctrl.numpy()
        self.batch.step(nstep=self.substeps, stage=self._stage)


@torch.inference_mode()  # as in a training
def measure(rooms: int, threads: int, rounds: int) -> tuple[float, float, float]:
    """Steps/s of full, of bare, and of bare at its fastest; medians of alternating rounds."""
    env = NavEnv(default_config().task, num_envs=rooms, seed=0, threads=threads)
    env.spread_ages()
    bare = [Bare(env, threads, fastest=fastest) for fastest in (False, True)]
    generator = torch.Generator().manual_seed(0)
    actions = [torch.rand(rooms, 3, generator=generator) * 2 - 1 for _ in range(STEPS)]
    calls = (env.step, *(each.step for each in bare))
    times: tuple[list[float], ...] = ([], [], [])
    for round_ in range(rounds + 1):
        for call, seconds in zip(calls, times, strict=True):
            for each in bare:
                each.restart()
            started = time.perf_counter()
            for action in actions:
                call(action)
            if round_:
                seconds.append(time.perf_counter() - started)
    full, as_it_comes, fastest = (rooms * STEPS / statistics.median(t) for t in times)
    return full, as_it_comes, fastest


def report_bare(rooms: list[int], threads: list[int], rounds: int) -> None:
    """Print the table of full and bare stepping."""
    print(f"{'rooms':>6} {'threads':>8} {'full steps/s':>13} {'bare':>9} {'full/bare':>10} {'(at its fastest)':>18}")
    for num in rooms:
        for count in threads:
            full, bare, fastest = measure(num, count, rounds)
            print(f"{num:6} {count:8} {full:13.0f} {bare:9.0f} {full / bare:10.2f} {full / fastest:18.2f}", flush=True)


class Ours:
    """Our environment under random actions, as the peers are driven."""

    def __init__(self, rooms: int, threads: int, *overrides: str):
        self.env = NavEnv(default_config(*overrides).task, num_envs=rooms, seed=0, threads=threads)
        self.env.spread_ages()
        generator = torch.Generator().manual_seed(0)
        self._actions = [torch.rand(rooms, 3, generator=generator) * 2 - 1 for _ in range(STEPS)]

    @torch.inference_mode()
    def rollout(self) -> int:
        """32 steps in every room; returns how many that are."""
        for action in self._actions:
            self.env.step(action)
        return STEPS * self.env.num_envs


def report_growth(threads: int, rounds: int) -> None:
    """Print what a step in one room costs where there are many, against where there are few."""
    environments = {rooms: Ours(rooms, threads) for rooms in GROWTH}
    costs: dict[int, list[float]] = {rooms: [] for rooms in GROWTH}
    for round_ in range(rounds + 1):
        for rooms, ours in environments.items():
            started = time.perf_counter()
            steps = sum(ours.rollout() for _ in range(GROWTH[-1] // rooms))
            if round_:
                costs[rooms].append((time.perf_counter() - started) / steps)
    for rooms in GROWTH:
        ratio = statistics.median(cost / few for cost, few in zip(costs[rooms], costs[GROWTH[0]], strict=True))
        cost = 1e6 * statistics.median(costs[rooms])
        print(f"{rooms:6} rooms, {threads} threads: {cost:.2f} us a step, {ratio:.2f}x (asked: at most 1.15x)")


class Measured:
    """Another process that is measured in turns; see ``peers/turns.py``."""

    def __init__(self, command: list[str], **environment: str):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | environment,
        )
        self._read("ready")

    def begin(self, seconds: float) -> None:
        """Start a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def end(self) -> float:
        """Steps/s of the turn that was begun."""
        return self._read("steps_per_s")

    def close(self) -> None:
        """No more turns."""
        self._process.communicate()

    def _read(self, key: str) -> float:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, TypeError, KeyError):  # libraries print, too
                return float(json.loads(line)[key])
        self._errors.seek(0)
        raise SystemExit(f"{self._process.args} ended:\n{self._errors.read()}")


def two_cores() -> list[int]:
    """Two of the cores that we may use."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit(f"two cores are needed, there is {len(cores)}")
    return cores[:2]


def report_trainings(rounds: int) -> None:
    """Print what two trials at once, with a core each, get done, against one with both cores."""
    cores = two_cores()

    def trial(*own: int) -> Measured:
        command = [sys.executable, __file__, "--train", *map(str, own)]
        return Measured(command, OMP_NUM_THREADS=str(len(own)))

    pair, single = [trial(core) for core in cores], trial(*cores)
    both, one = [], []
    for round_ in range(rounds + 1):
        for trials, rates in ((pair, both), ([single], one)):
            for each in trials:
                each.begin(TRAINING_TURN)
            rate = sum([each.end() for each in trials])
            if round_:
                rates.append(rate)
    for each in (*pair, single):
        each.close()
    ratio = statistics.median(two / alone for two, alone in zip(both, one, strict=True))
    print(f"two one-thread trials at once {statistics.median(both):7.0f} steps/s")
    print(f"one two-thread trial          {statistics.median(one):7.0f} steps/s")
    print(f"ratio                         {ratio:7.2f} (asked: at least 1.4)")


def train(cores: list[int]) -> None:
    """Train on these cores as a job does, without evaluations and checkpoints, and be measured."""
    os.sched_setaffinity(0, cores)
    never = 1_000_000
    config = default_config(
        *(f"{key}={never}" for key in ("evaluation.every", "algorithm.checkpoint_every", "algorithm.iterations"))
    )
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(config, seed=cores[0], folder=Path(folder), threads=len(cores))
        turns: list[Turns] = []

        def enough() -> bool:
            if not turns:  # the first iteration warms up
                turns.append(Turns())
                return False
            return not turns[0].go_on(config.num_envs * config.algorithm.num_steps_per_env)

        runner.train(None, enough)


def report_peers(rooms: int, rounds: int) -> None:
    """Print the full step's rate against that of each peer that is installed, all on the same two cores."""
    os.sched_setaffinity(0, two_cores())
    peers: dict[str, Measured] = {}
    for what, (name, arguments, _) in PEERS.items():
        if installed(name):
            script = Path(__file__).parent / "peers" / f"{name}_env.py"
            peers[what] = Measured([str(interpreter(name)), str(script), *arguments])
        else:
            print(f"{what} is not installed: tests/benchmarks/peers/install.py {name}")
    ours = Ours(rooms, 2, "task.rooms.obstacles=[12,12]")
    rates: dict[str, list[float]] = {name: [] for name in ("ours", *peers)}
    for round_ in range(rounds + 1):
        started, steps = time.perf_counter(), 0
        while (seconds := time.perf_counter() - started) < TURN:
            steps += ours.rollout()
        turn = {"ours": steps / seconds}
        for name, peer in peers.items():
            peer.begin(TURN)
            turn[name] = peer.end()
        if round_:
            for name, rate in turn.items():
                rates[name].append(rate)
    print(f"{rooms} rooms of 12 obstacles, two cores, full step with lidar, terms, resets, medians of {rounds} turns")
    print(f"{'ours':34} {statistics.median(rates['ours']):8.0f} steps/s")
    for what, peer in peers.items():
        peer.close()
        *_, asked = PEERS[what]
        ratio = statistics.median(own / theirs for own, theirs in zip(rates["ours"], rates[what], strict=True))
        print(f"{what:34} {statistics.median(rates[what]):8.0f} steps/s, ours {ratio:.1f}x (asked: at least {asked}x)")


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", type=int, nargs="+", default=[256, 1024], help="full against bare only")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="full against bare only")
    parser.add_argument("--rounds", type=int, default=15)
    what = parser.add_mutually_exclusive_group()
    for name in ("growth", "trainings", "peers"):
        what.add_argument(f"--{name}", action="store_true")
    what.add_argument("--train", type=int, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.growth:
        report_growth(2, arguments.rounds)
    elif arguments.trainings:
        report_trainings(arguments.rounds)
    elif arguments.peers:
        report_peers(256, arguments.rounds)
    elif arguments.train:
        train(arguments.train)
    else:
        report_bare(arguments.rooms, arguments.threads, arguments.rounds)


if __name__ == "__main__":
    main()
