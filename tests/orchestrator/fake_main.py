"""`python -m orchestrator` with jobs that learn nothing: run as a script by tests of the whole driver."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from orchestrator.__main__ import main

if __name__ == "__main__":
    sys.exit(
        main(
            entry="fake_jobs:train",
            preload=("orchestrator.record.wal", "orchestrator.job.spec", "fake_jobs"),
            warm=None,
        )
    )
