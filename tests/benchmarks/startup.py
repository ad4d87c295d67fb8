"""From "slot free" to the first environment step of the next trial, through the local launcher (asked: at most 0.7 s).

.venv/bin/python tests/benchmarks/startup.py [--jobs 8]
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from throughput import default_config

from orchestrator.job import spec

STAMP = "first_step"


def until_first_step(folder: Path) -> int:
    """The real job, which ends when its environment is about to be stepped for the first time."""
    from navtask.contract import VecTask
    from orchestrator.job.run import run_trial

    def stamp(*_: Any) -> None:
        (folder / STAMP).write_text(repr(time.time()))
        os._exit(0)

    VecTask.step = stamp  # type: ignore[method-assign, assignment]
    return run_trial(folder)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=8)
    arguments = parser.parse_args()

    from orchestrator.launch.local import LocalLauncher

    config = default_config()
    launcher = LocalLauncher(config.launcher, "cpu", False, entry="startup:until_first_step")
    started = time.time()
    while not launcher.ready():
        time.sleep(0.01)
    print(f"launcher ready after {time.time() - started:.2f} s, once a sweep")
    waits = []
    with tempfile.TemporaryDirectory() as root:
        for number in range(arguments.jobs):
            folder = Path(root) / f"trial_{number:04d}"
            begun = time.time()
            spec.write(spec.TrialSpec(study="startup", number=number, seed=1, params={}, folder=folder, config=config))
            handle = launcher.start(folder)
            while not (folder / STAMP).exists() or not (folder / STAMP).read_text():
                time.sleep(0.005)
            waits.append(float((folder / STAMP).read_text()) - begun)
            while launcher.poll(handle) is None:
                time.sleep(0.01)
    launcher.close()
    print(f"slot free to first step: median {statistics.median(waits):.2f} s, most {max(waits):.2f} s (asked: 0.7 s)")


if __name__ == "__main__":
    main()
