"""A checked config driven to its end: one training, or a search."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from orchestrator import health, plan, terminal
from orchestrator.config import PROJECT, Config
from orchestrator.driver import Driver
from orchestrator.job.spec import METRICS
from orchestrator.provenance import provenance
from orchestrator.record import wal
from orchestrator.record.mlflow import Recorder
from orchestrator.record.redact import redact
from orchestrator.record.store import resolve_uri
from orchestrator.recording import NoRecorder
from orchestrator.search.base import DATABASE, Search, trial_folder
from orchestrator.search.objective import Judge
from orchestrator.status import View


def drive(
    config: Config, launcher_options: Mapping[str, Any], tags: Mapping[str, str], again: str | None = None
) -> tuple[int, Search]:
    """Train, or search. ``tags`` go to every run in MLflow; ``again``: which training a single run repeats.

    Returns the exit code and where the trials are; raises UserError before anything has started.
    """
    made = plan.make(config)
    launcher = made.launcher(config.launcher, config.device, made.space is None, **launcher_options)
    if config.dry_run:
        print("\n".join(plan.describe(made, launcher)))
        return 0, made.search
    for line in plan.outside(made):
        print(line)
    tags = {**tags, **health.examine(config)}
    uri = resolve_uri(config.tracking.uri, PROJECT) if config.tracking.uri is not None else None

    def recorder(tell: Any) -> Recorder | NoRecorder:
        if again is not None:  # only now, with the search open, is it known where
            folder = trial_folder(made.search.folder, made.search.unfinished()[0].number)
            tell(f"{again} is trained again as {terminal.short(folder)}")
        return Recorder(uri, config.experiment_name, tell=tell) if uri is not None else NoRecorder()

    screen = terminal.open_screen()
    driver = Driver(config, made.search, launcher, recorder, screen, provenance() | dict(tags))
    try:
        code = driver.run()
    except Exception as error:
        if made.space is not None:
            error.add_note(str(made.search.folder / DATABASE))  # a database's errors don't say which one
        raise
    tracking = redact(uri) if uri is not None else None
    told = isinstance(screen, terminal.PlainScreen)
    terminal.tell(*terminal.summary(driver.status, made.search.folder, tracking, made.space is not None, told))
    if code:
        terminal.tell("interrupted; the same command goes on where it stopped")
        return code, made.search
    views = driver.status.views.values()
    if made.space is None and any(view.mistaken for view in views):
        return 2, made.search
    if not any(view.state == "finished" for view in views):
        return 1, made.search
    return (0 if _meets_requirements(config, made.search.folder, views) else 1), made.search


def _meets_requirements(config: Config, folder: Path, views: Iterable[View]) -> bool:
    """Whether a single run ended as well as it must; says so where it didn't."""
    met, judge = True, Judge(config)
    for view in views:
        records = wal.read(trial_folder(folder, view.number) / METRICS)
        for metric, least in config.require.items():
            value = judge.measure(records, metric)
            if value is None or not value >= least:
                shown = "has no value in the last evaluations" if value is None else f"is {value:.3f}"
                print(f"error: {metric} {shown}, required is at least {least:g}", file=sys.stderr)
                met = False
    return met
