"""How fast the default config learns, over seeds; evaluations are not counted as training time.

Prints, for each seed and as medians: seconds of training until 95 % of the frozen rooms are reached, and the success
rate (mean of the last three evaluations) after 60 seconds of training. One training at a time has the machine.

    .venv/bin/python tests/benchmarks/learning.py [--seeds 5] [--seconds 60]
"""

import argparse
import contextlib
import io
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from throughput import default_config

from orchestrator.job.curves import Curves
from orchestrator.job.runner import Runner


def train(seed: int, seconds: float, every: int, overrides: list[str]) -> list[tuple[float, float]]:
    """(seconds of training, success rate) at each evaluation, until ``seconds`` have been trained."""
    config = default_config(f"evaluation.every={every}", *overrides)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(config, seed=seed, folder=Path(folder), threads=len(os.sched_getaffinity(0)))
        history: list[tuple[float, float]] = []

        def enough() -> bool:
            if len(runner.evaluations) > len(history):
                history.append((runner.train_seconds, runner.evaluations[-1]["Eval/success_rate"]))
            return runner.train_seconds >= seconds

        curves = Curves(Path(folder))
        runner.train(curves, enough)
        enough()
        curves.close()
    return history


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=int, default=5, help="iterations between two evaluations")
    parser.add_argument("overrides", nargs="*", help="of the config, as on the command line of orchestrator")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    reached, final = [], []
    for seed in range(arguments.seeds):
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            history = train(seed, arguments.seconds, arguments.every, arguments.overrides)
        hit = next((t for t, success in history if success >= 0.95), float("inf"))
        last = statistics.mean(success for _, success in history[-3:])
        reached.append(hit)
        final.append(last)
        print(
            f"seed {seed}: 95 % after {hit:.1f} s, {last:.4f} after {history[-1][0]:.0f} s of training "
            f"({time.perf_counter() - started:.0f} s in all)  "
            + " ".join(f"{t:.0f}:{success:.3f}" for t, success in history[:: max(1, len(history) // 12)]),
            flush=True,
        )
    print(f"median of {arguments.seeds} seeds: 95 % after {statistics.median(reached):.1f} s (asked: at most 20)")
    print(
        f"median of {arguments.seeds} seeds: success {statistics.median(final):.4f} at the end (asked: at least 0.97)"
    )


if __name__ == "__main__":
    main()
