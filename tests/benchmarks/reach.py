"""How fast an arm learns to reach, default config; evaluations are not counted as training time.

Prints, for each seed and as medians: seconds of training and control steps until 90 % of the frozen targets are
reached, and success and time to the goal at the end. One training at a time has the machine.

    .venv/bin/python tests/benchmarks/reach.py [--seeds 3]
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

from orchestrator.job.runner import Runner


def train(seed: int, overrides: list[str]) -> list[dict[str, float]]:
    """Each evaluation's metrics and ``seconds`` of training, over the whole training."""
    config = default_config("task=reach", "evaluation.every=5", *overrides)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(config, seed=seed, folder=Path(folder), threads=len(os.sched_getaffinity(0)))
        history: list[dict[str, float]] = []

        def note() -> bool:
            if len(runner.evaluations) > len(history):
                history.append({**runner.evaluations[-1], "seconds": runner.train_seconds})
            return False

        runner.train(None, note)
        note()
    steps = config.num_envs * config.algorithm.num_steps_per_env
    return [{**evaluation, "steps": evaluation["step"] * steps} for evaluation in history]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("overrides", nargs="*", help="of the config, as on the command line of orchestrator")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    reached, final = [], []
    never = {"seconds": float("inf"), "steps": float("inf")}
    for seed in range(arguments.seeds):
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            history = train(seed, arguments.overrides)
        hit = next((evaluation for evaluation in history if evaluation["Eval/success_rate"] >= 0.9), never)
        last = history[-1]
        reached.append(hit["seconds"])
        final.append(last["Eval/success_rate"])
        print(
            f"seed {seed}: 90 % after {hit['seconds']:.1f} s, {hit['steps']:,.0f} control steps; at the end, after "
            f"{last['seconds']:.0f} s: success {last['Eval/success_rate']:.3f} in {last['Eval/time_to_goal']:.2f} s, "
            f"spl {last['Eval/spl']:.3f} ({time.perf_counter() - started:.0f} s in all)",
            flush=True,
        )
    print(
        f"median of {arguments.seeds} seeds: 90 % after {statistics.median(reached):.1f} s "
        f"({min(reached):.1f} to {max(reached):.1f}); success at the end {statistics.median(final):.3f} "
        "(asked: at least 0.90)"
    )


if __name__ == "__main__":
    main()
