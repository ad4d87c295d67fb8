"""Which code made a result: what every run carries, so that it can be made again."""

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

from orchestrator.config import PROJECT

PACKAGES = ("torch", "rsl-rl-lib", "mujoco", "mujoco-warp", "warp-lang", "numpy", "optuna", "mlflow", "hydra-core")
"""On whose versions a result may depend."""

LOCK = PROJECT / "requirements.lock"


def provenance() -> dict[str, str]:
    """Tags: ``git.commit`` and ``git.dirty`` (absent outside a repository), ``lock.hash`` (of ``requirements.lock``),
    ``version.python`` and ``version.<package>``."""
    tags = _git_state()
    if LOCK.exists():
        tags["lock.hash"] = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    tags["version.python"] = platform.python_version()
    for package in PACKAGES:
        try:
            tags[f"version.{package}"] = version(package)
        except PackageNotFoundError:
            tags[f"version.{package}"] = "none"
    return tags


def _git_state() -> dict[str, str]:
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
