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

from navtask.stdout import is_unread, quiet_when_unread
from orchestrator.command import say, tell
from orchestrator.config import CONF, PROJECT, from_composed
from orchestrator.config.explain import composition_error
from orchestrator.errors import UserError, nearest
from orchestrator.search.best import ADD_BEST, BEST


@quiet_when_unread()
def main(**launcher_options: Any) -> int:
    """Do what the command line says. ``launcher_options`` go to the launcher's constructor (tests replace the job)."""
    code = 0
    raised: Exception | None = None  # kept from Hydra, which would print a line of its own

    @hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
    def task(composed: DictConfig) -> None:
        nonlocal code, raised
        try:
            from orchestrator.drive import drive  # a second that a mistake in the config need not wait for

            code = max(code, drive(from_composed(composed), launcher_options, {})[0])
        except Exception as error:
            raised = error

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # until the driver takes it over
    with _hydra_raises():
        try:
            _check_switches()
            task()
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            if is_unread(error):
                raise
            say(_explained(error))
            return 2
    return code if raised is None else tell(raised)


def _switches() -> tuple[argparse.Namespace, list[str]]:
    """Hydra's switches that are our concern, and everything else on the command line."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("--multirun", "-m", action="store_true")
    return parser.parse_known_args()


def _check_switches() -> None:
    """Hydra passes over a folder that isn't there, and sweeps in its own way. Raises UserError."""
    own, arguments = _switches()
    if own.multirun:
        raise UserError("--multirun: a sweep is chosen with +sweep=reward_weights; it needs no --multirun")
    folder = own.config_dir
    if folder is None:
        return
    if not folder.is_dir():
        raise UserError(f"--config-dir {folder}: there is no such folder{nearest(folder, _studies())}")
    if ADD_BEST in arguments and not (folder / BEST).exists():
        hint = nearest(folder, _studies())
        raise UserError(f"--config-dir {folder}: holds no {BEST}; expected the folder of a study that has ended{hint}")


def _studies() -> list[str]:
    """Folders that hold the config of a best trial."""
    return [str(best.parents[1].relative_to(PROJECT)) for best in PROJECT.glob(f"sweeps/*/{BEST}")]


def _explained(error: Exception) -> str:
    if isinstance(error, UserError):
        return str(error)
    own, arguments = _switches()
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
