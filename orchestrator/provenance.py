"""Which code made a result."""

import subprocess

from orchestrator.config import PROJECT


def git_state() -> dict[str, str]:
    """Tags ``git.commit`` and ``git.dirty``; empty outside a repository."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {}
    return {"git.commit": commit, "git.dirty": str(bool(_git("status", "--porcelain", "--untracked-files=no"))).lower()}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(("git", "-C", str(PROJECT), *arguments), capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
