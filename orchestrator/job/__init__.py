"""One training job: reads a trial's folder, trains, writes files only."""

from pathlib import Path


def run(folder: Path) -> int:
    """Train the trial of ``folder``, or go on from its last checkpoint. Returns the exit code.

    0 finished and 1 failed leave a ``result.json``; 130 and 143 (SIGINT, SIGTERM) leave a checkpoint to go on from.
    """
    from orchestrator.job.run import run_trial  # heavy imports: torch, rsl_rl, mujoco

    return run_trial(folder)
