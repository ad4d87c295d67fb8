"""``python -m tests.benchmarks [NAME ...]``: the figures of the README's table, one after the other, on a machine left
alone. ``peers`` has something to compare with once ``peers/install.py`` has run."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = {
    "throughput": ("throughput.py",),
    "growth": ("throughput.py", "--growth"),
    "trainings": ("throughput.py", "--trainings"),
    "peers": ("throughput.py", "--peers"),
    "startup": ("startup.py",),
    "tracking": ("tracking.py",),
    "learning": ("learning.py",),
    "options": ("options.py",),
    "reach": ("reach.py",),
    "sweep": ("sweep.py",),
}


def main(names: list[str]) -> int:
    """Run the benchmarks of those names, or all; returns the number of those that failed."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"error: no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or BENCHMARKS:
        print(f"\n== {name}", flush=True)
        script, *options = BENCHMARKS[name]
        command = [sys.executable, str(Path(__file__).with_name(script)), *options]
        failed += subprocess.run(command, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
