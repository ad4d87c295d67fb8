"""``python -m tests.benchmarks``: every figure of the README's table, one after the other, on a machine left alone."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = ("throughput", "startup", "tracking", "learning", "reach", "sweep")


def main(names: list[str]) -> int:
    """Run the scripts of that name, or all; returns the number of those that failed."""
    failed = 0
    for name in names or SCRIPTS:
        print(f"\n== {name}", flush=True)
        failed += subprocess.run([sys.executable, Path(__file__).with_name(f"{name}.py")], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
