"""``python -m orchestrator``: compose -> plan -> drive.

Exit codes: 0 done, 1 failed, 2 the user's mistake, 130 / 143 interrupted.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import hydra
from hydra import initialize_config_dir
from omegaconf import DictConfig
from optuna.exceptions import OptunaError
from sqlalchemy.exc import SQLAlchemyError

from orchestrator import explain, plan, terminal
from orchestrator.config import PROJECT, Config, from_composed
from orchestrator.driver import Driver, NoRecorder
from orchestrator.errors import UserError
from orchestrator.provenance import git_state
from orchestrator.record import wal
from orchestrator.record.mlflow import Recorder
from orchestrator.record.redact import redact
from orchestrator.record.store import resolve_uri
from orchestrator.search.base import trial_folder
from orchestrator.search.objective import summarise

CONF = PROJECT / "conf"


def main(**launcher_options: Any) -> int:
    """Do what the command line says. ``launcher_options`` go to the launcher's constructor (tests replace the job)."""
    code = 0
    raised: Exception | None = None  # kept from Hydra, which would print a line of its own

    @hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
    def task(composed: DictConfig) -> None:
        nonlocal code, raised
        try:
            code = max(code, run(from_composed(composed), launcher_options))
        except Exception as error:
            raised = error

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # until the driver takes it over
    with _hydra_raises():
        try:
            task()
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            return _mistake(_explained(error))
    if isinstance(raised, UserError):
        return _mistake(str(raised))
    if isinstance(
        raised, OSError | RuntimeError | OptunaError | SQLAlchemyError
    ):  # a full disk, a database that is locked, no fork server
        _say(raised)
        return 1
    if raised is not None:
        raise raised
    return code


def run(config: Config, launcher_options: Mapping[str, Any]) -> int:
    """Train, or search. Returns the exit code; raises UserError before anything has started."""
    made = plan.make(config)
    launcher = made.launcher(config.launcher, config.device, made.space is None, **launcher_options)
    if config.dry_run:
        print("\n".join(plan.describe(made, launcher)))
        return 0
    uri = resolve_uri(config.tracking.uri, PROJECT) if config.tracking.uri is not None else None

    def recorder(tell: Any) -> Recorder | NoRecorder:
        return Recorder(uri, config.experiment_name, tell=tell) if uri is not None else NoRecorder()

    driver = Driver(config, made.search, launcher, recorder, terminal.open_screen(), git_state())
    code = driver.run()
    tracking = redact(uri) if uri is not None else None
    print("\n".join(terminal.summary(driver.status, made.search.folder, tracking, made.space is not None)))
    if code:
        print("interrupted; the same command goes on where it stopped")
        return code
    if not any(view.state == "finished" for view in driver.status.views.values()):
        return 1
    return 0 if _meets_requirements(config, driver) else 1


def _meets_requirements(config: Config, driver: Driver) -> bool:
    """Whether a single run ended as well as it must; says so where it didn't."""
    met = True
    for metric, least in config.require.items():
        for number in driver.status.views:
            records = wal.read(
                trial_folder(PROJECT / config.output_dir / config.experiment_name, number) / "metrics.jsonl"
            )
            value = summarise([r.metrics[metric] for r in records if metric in r.metrics], 3)
            if value is None or not value >= least:
                shown = "was never measured" if value is None else f"is {value:.3f}"
                print(f"error: {metric} {shown}, required is at least {least:g}", file=sys.stderr)
                met = False
    return met


def _mistake(line: str) -> int:
    _say(line)
    return 2


def _say(error: object) -> None:
    print(f"error: {redact(' '.join(str(error).split()))}", file=sys.stderr)


def _explained(error: Exception) -> str:
    overrides = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    with initialize_config_dir(str(CONF), version_base="1.3"):  # names that exist are asked of the config itself
        return explain.composition_error(error, overrides)


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
