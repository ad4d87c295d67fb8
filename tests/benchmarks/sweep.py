"""The default sweep, as a user starts it (asked: at least 12 trials in under 10 minutes, none failed).

.venv/bin/python tests/benchmarks/sweep.py
"""

import collections
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import optuna

PROJECT = Path(__file__).parents[2]


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "orchestrator", "+sweep=reward_weights", *sys.argv[1:]]
        own = [f"output_dir={folder}", f"tracking.uri=sqlite:///{folder}/mlflow.db"]
        started = time.perf_counter()
        done = subprocess.run([*command, *own], cwd=PROJECT, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        print(done.stdout[-2000:], done.stderr[-2000:], sep="")
        study = optuna.load_study(study_name=None, storage=f"sqlite:///{folder}/reward_weights/study.db")
        states = collections.Counter(trial.state.name for trial in study.trials)
    trials, minutes = sum(states.values()), seconds / 60
    print(f"default sweep: {trials} trials in {minutes:.1f} min, {dict(states)}, exit {done.returncode}")


if __name__ == "__main__":
    main()
