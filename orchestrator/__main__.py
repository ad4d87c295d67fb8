"""``python -m orchestrator``: compose -> plan -> drive.

Exit codes: 0 done, 1 failed, 2 the user's mistake, 130 / 143 interrupted.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra import initialize_config_dir
from omegaconf import DictConfig

from orchestrator.command import say, tell
from orchestrator.config import CONF, from_composed
from orchestrator.config.explain import composition_error
from orchestrator.drive import drive


def main(**launcher_options: Any) -> int:
    """Do what the command line says. ``launcher_options`` go to the launcher's constructor (tests replace the job)."""
    code = 0
    raised: Exception | None = None  # kept from Hydra, which would print a line of its own

    @hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
    def task(composed: DictConfig) -> None:
        nonlocal code, raised
        try:
            code = max(code, drive(from_composed(composed), launcher_options, {})[0])
        except Exception as error:
            raised = error

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # until the driver takes it over
    with _hydra_raises():
        try:
            task()
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            say(_explained(error))
            return 2
    return code if raised is None else tell(raised)


def _explained(error: Exception) -> str:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    own, arguments = parser.parse_known_args()
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    if own.config_dir is not None:  # what is chosen from there isn't known here
        overrides = [o for o in overrides if not (own.config_dir / o.lstrip("+").partition("=")[0]).is_dir()]
    with initialize_config_dir(str(CONF), version_base="1.3"):  # names that exist are asked of the config itself
        return composition_error(error, overrides)


@contextmanager
def _hydra_raises() -> Iterator[None]:
    """Hydra reports its errors itself, and exits with 1, unless this variable says that it should raise them."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


if __name__ == "__main__":
    sys.exit(main())
