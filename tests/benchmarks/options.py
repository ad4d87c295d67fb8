"""Every learning option against the default config, in one table.

Each row is the default with one thing changed, trained on `open` with each seed for the same number of iterations, one
core for each training and as many at a time as there are cores; two processes have two. Success is the mean over the
last three evaluations. The time to 90 % is that of training, evaluations not counted; a seed that did not get there
makes it >. An iteration's time is against the default's. Where a range stands, it is that over the seeds.

A short budget and few seeds tell what is broken or slow from what is not, and not which of two good ones is better.

    .venv/bin/python tests/benchmarks/options.py [--seeds 3] [--iterations 80] [--only default rnd]
"""

import argparse
import contextlib
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from throughput import default_config

from orchestrator.job import spec
from orchestrator.job.run import run_trial
from orchestrator.launch import torchrun
from orchestrator.record import wal

OPTIONS: dict[str, tuple[str, ...]] = {
    "default": (),
    "asymmetric critic": ("policy.obs_groups.critic=[policy,privileged]",),
    "heteroscedastic actor": ("policy.distribution=HeteroscedasticGaussianDistribution",),
    "beta actor": ("policy.distribution=BetaDistribution",),
    "no symmetry": ("algorithm.symmetry=none",),
    "mirror loss": ("algorithm.symmetry=mirror_loss",),
    "augmentation and mirror loss": ("algorithm.symmetry=both",),
    "rnd": ("algorithm/rnd=default",),
    "history of 4": ("task.history=4",),
    "lidar noise and drop-out": ("task.lidar.noise_std=0.02", "task.lidar.dropout=0.05"),
    "bootstrap with V before": ("algorithm.bootstrap=current",),
    # The default's rate is only where the adaptive schedule starts from.
    "fixed schedule": ("algorithm.schedule=fixed", "algorithm.learning_rate=1e-3"),
    "two processes": ("launcher.nproc_per_node=2",),
}


@dataclass(frozen=True)
class Training:
    """What one training came to."""

    success: float
    reached: float
    """Seconds of training until 90 % of the rooms were reached; infinite where they were not."""
    iteration: float
    """Median seconds of an iteration, evaluations not counted."""


def train(option: str, seed: int, overrides: list[str]) -> Training:
    """One training of an option, as a job does it."""
    config = default_config("task/rooms=open", *overrides, *OPTIONS[option])
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "trial"
        spec.write(spec.TrialSpec(study="options", number=0, seed=seed, params={}, folder=folder, config=config))
        processes = config.launcher.nproc_per_node
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            code = torchrun.run(run_trial, folder, processes) if processes > 1 else run_trial(folder)
        if code:
            raise RuntimeError(f"{option}, seed {seed}: exit code {code}")
        curves = [record.metrics for record in wal.read(folder / spec.METRICS)]
    times = [metrics["Perf/collection_time"] + metrics["Perf/learning_time"] for metrics in curves]
    evaluated = [i for i, metrics in enumerate(curves) if "Eval/success_rate" in metrics]
    success = [curves[i]["Eval/success_rate"] for i in evaluated]
    reached = next((sum(times[: i + 1]) for i, s in zip(evaluated, success, strict=True) if s >= 0.9), math.inf)
    return Training(statistics.mean(success[-3:]), reached, statistics.median(times))


def train_all(options: list[str], seeds: int, overrides: list[str]) -> dict[str, list[Training]]:
    """Every option with every seed. Seeds take turns, so a drift of the machine's speed meets all options alike."""
    cores = sorted(os.sched_getaffinity(0))
    alone = [option for option in options if any("nproc_per_node" in setting for setting in OPTIONS[option])]
    done: dict[str, list[Training]] = {option: [] for option in options}
    for seed in range(seeds):
        for option in alone:
            done[option].append(train(option, seed, overrides))
    free: Queue[int] = multiprocessing.get_context("forkserver").Queue()
    for core in cores:
        free.put(core)
    with multiprocessing.get_context("forkserver").Pool(len(cores), _keep_to_a_core, (free,)) as pool:
        others = [(option, seed, overrides) for seed in range(seeds) for option in options if option not in alone]
        for (option, _, _), training in zip(others, pool.starmap(train, others, chunksize=1), strict=True):
            done[option].append(training)
    return done


def _keep_to_a_core(free: "Queue[int]") -> None:
    os.sched_setaffinity(0, {free.get()})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--only", nargs="+", choices=OPTIONS, default=list(OPTIONS), metavar="OPTION")
    parser.add_argument("overrides", nargs="*", help="of the config, as on the command line of orchestrator")
    arguments = parser.parse_args()
    overrides = [f"algorithm.iterations={arguments.iterations}", "evaluation.every=5", "evaluation.num_rooms=500"]
    started = time.perf_counter()
    done = train_all(arguments.only, arguments.seeds, [*overrides, *arguments.overrides])
    reference = statistics.median(t.iteration for t in done[arguments.only[0]])
    print(f"| option | success | time to 90 %, s | iteration, against {arguments.only[0]} |\n|---|---|---|---|")
    for option, trainings in done.items():
        success = [t.success for t in trainings]
        reached = sorted(t.reached for t in trainings)
        middle = f"{statistics.median_low(reached):.0f}" if math.isfinite(statistics.median_low(reached)) else ">"
        last = f"{reached[-1]:.0f}" if math.isfinite(reached[-1]) else ">"
        ratio = statistics.median(t.iteration for t in trainings) / reference
        print(
            f"| {option} | {statistics.mean(success):.3f} ({min(success):.3f} to {max(success):.3f}) "
            f"| {middle} (to {last}) | {ratio:.2f} |"
        )
    minutes = (time.perf_counter() - started) / 60
    print(
        f"\n{arguments.seeds} seeds, {arguments.iterations} iterations, one core each ('two processes': two); an "
        f"iteration of '{arguments.only[0]}' took {reference:.2f} s; {minutes:.0f} min in all"
    )


if __name__ == "__main__":
    main()
