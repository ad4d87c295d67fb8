import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def orchestrator(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The real command, with real jobs and a store of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        own = (f"output_dir={tmp_path / 'sweeps'}", f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}")
        command = [sys.executable, "-m", "orchestrator", *arguments, *own]
        return subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, timeout=240)

    return run
