"""The full environment step against bare physics, in one run.

Full: lidar, ends, rewards, resets with new rooms, observation. Bare: ``mujoco.batch`` stepping the same rooms under the
same commands and computing kinematics and contacts of the new state, nothing else; and the same without the latter.
They take turns of 32 steps, so a drift of the machine's speed cancels out.

    .venv/bin/python tests/benchmarks/throughput.py
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import mujoco
import torch
from hydra import compose, initialize_config_dir
from mujoco.batch import Batch

from navtask.nav.env import NavEnv
from navtask.nav.scene import build_model, first_obstacle_geom
from orchestrator.config import PROJECT, Config, from_composed, register

STEPS = 32


def default_config(*overrides: str) -> Config:
    """The project's own config."""
    register()
    with initialize_config_dir(str(PROJECT / "conf"), version_base="1.3"):
        return from_composed(compose("config", overrides=["device=cpu", *overrides]))


class Bare:
    """The rooms of an environment, stepped by the engine alone."""

    def __init__(self, env: NavEnv, threads: int):
        config = env.config
        model = build_model(config.rooms, config.physics_dt)
        self.batch = Batch(model, nsim=env.num_envs, nthread=threads)
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

    def step(self, ctrl: torch.Tensor, stage: mujoco.mjtStage) -> None:
        """One control step."""
        self.ctrl[:] = ctrl.numpy()
        self.batch.step(nstep=self.substeps, stage=stage.value)


@torch.inference_mode()  # as in a training
def measure(rooms: int, threads: int, rounds: int) -> tuple[float, float, float]:
    """Steps/s of full, bare with the new state's contacts, and bare without; medians of alternating rounds."""
    env = NavEnv(default_config().task, num_envs=rooms, seed=0, threads=threads)
    env.spread_ages()
    bare = Bare(env, threads)
    generator = torch.Generator().manual_seed(0)
    actions = [torch.rand(rooms, 3, generator=generator) * 2 - 1 for _ in range(STEPS)]
    velocity, none = mujoco.mjtStage.mjSTAGE_VEL, mujoco.mjtStage.mjSTAGE_NONE
    calls = (env.step, lambda a: bare.step(a, velocity), lambda a: bare.step(a, none))
    times: tuple[list[float], ...] = ([], [], [])
    for round_ in range(rounds + 1):
        for call, seconds in zip(calls, times, strict=True):
            bare.restart()
            started = time.perf_counter()
            for action in actions:
                call(action)
            if round_:
                seconds.append(time.perf_counter() - started)
    full, with_contacts, without = (rooms * STEPS / statistics.median(t) for t in times)
    return full, with_contacts, without


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'rooms':>6} {'threads':>8} {'full steps/s':>13} {'bare':>9} {'full/bare':>10} {'(without contacts)':>25}")
    for rooms in arguments.rooms:
        for threads in arguments.threads:
            full, bare, without = measure(rooms, threads, arguments.rounds)
            print(
                f"{rooms:6} {threads:8} {full:13.0f} {bare:9.0f} {full / bare:10.2f} {full / without:25.2f}", flush=True
            )


if __name__ == "__main__":
    main()
