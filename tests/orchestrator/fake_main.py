"""`python -m orchestrator` with jobs that learn nothing: run as a script by tests of the whole driver."""

import sys
from pathlib import Path

if __name__ == "__main__":  # jobs import this file again, and need nothing of it
    sys.path.insert(0, str(Path(__file__).parent))
    from orchestrator.__main__ import main

    preload = ("orchestrator.record.wal", "orchestrator.job.spec", "fake_jobs")
    sys.exit(main(entry="fake_jobs:train", preload=preload, warm=None))
