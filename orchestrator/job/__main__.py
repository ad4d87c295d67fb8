"""``python -m orchestrator.job <folder>``: run the trial of a folder in this very process."""

import sys
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.job.run import run_trial
from orchestrator.launch.base import MISTAKE


def main(arguments: list[str]) -> int:
    """Exit code of the job."""
    if len(arguments) != 1:
        print("usage: python -m orchestrator.job <trial folder>", file=sys.stderr)
        return MISTAKE
    try:
        return run_trial(Path(arguments[0]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
