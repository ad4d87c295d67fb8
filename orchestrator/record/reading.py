"""A run as MLflow holds it, for those who read. Whatever goes wrong there is one line for people."""

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from orchestrator.config import Config, from_plain
from orchestrator.errors import UserError
from orchestrator.job.spec import CONFIG, from_yaml
from orchestrator.record.redact import redact
from orchestrator.record.store import check_uri, connect, one_line

Curves = Mapping[str, Mapping[int, float]]
"""Metric -> step -> value."""

PARENT = "mlflow.parentRunId"
"""The tag by which MLflow nests runs."""

_NO_SUCH_RUN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


class RecordedRun:
    """A run in MLflow. Every method raises UserError where the store can't be read any more."""

    def __init__(self, client: Any, run: Any, uri: str) -> None:
        self._client, self._uri = client, uri
        self.run_id: str = run.info.run_id
        self.name: str = run.info.run_name
        self.tags: Mapping[str, str] = run.data.tags
        self.params: Mapping[str, str] = run.data.params
        self._metrics: tuple[str, ...] = tuple(run.data.metrics)

    def curves(self) -> Curves:
        """All its metrics."""
        with _one_line_each(self._uri):
            return {
                name: {point.step: point.value for point in self._client.get_metric_history(self.run_id, name)}
                for name in self._metrics
            }

    def config(self) -> Config:
        """What it was trained with. Raises UserError where it has none, as a sweep's own run, or a damaged one."""
        with self.artifact(CONFIG) as file:
            if file is None:
                raise UserError(f"run={self.run_id}: '{self.name}' has no {CONFIG}: a sweep? take one of its trials")
            text = file.read_text(errors="replace")
        try:
            return from_plain(from_yaml(text))
        except yaml.YAMLError as error:
            raise UserError(f"run={self.run_id}: its {CONFIG} is damaged: {str(error).splitlines()[0]}") from error

    @contextmanager
    def artifact(self, path: str) -> Iterator[Path | None]:
        """A file of its artifacts, there while this is entered; None where it has none of that name."""
        above = path.rpartition("/")[0]
        with tempfile.TemporaryDirectory() as folder:
            with _one_line_each(self._uri):
                there = path in {file.path for file in self._client.list_artifacts(self.run_id, above or None)}
                file = Path(self._client.download_artifacts(self.run_id, path, folder)) if there else None
            yield file


def open_run(run_id: str, uri: str) -> RecordedRun:
    """A training's run in the store at ``uri`` (absolute, see ``store.resolve_uri``).

    Raises UserError where there is no such run, where it is a sweep's, or the store can't be read; makes no store, and
    no experiment.
    """
    check_uri(uri)
    if uri.startswith("sqlite:///"):
        _check_database(uri)
    with _one_line_each(uri):
        client = connect(uri)
        try:
            run = client.get_run(run_id)
        except Exception as error:
            if getattr(error, "error_code", None) not in _NO_SUCH_RUN:
                raise
            raise UserError(f"run={run_id}: neither a folder nor a run in {redact(uri)}") from error
        _check_training(client, run)
    return RecordedRun(client, run, uri)


def _check_training(client: Any, run: Any) -> None:
    """Raise UserError for a sweep's own run, naming its trials."""
    if PARENT in run.data.tags:
        return
    of_sweep = f"tags.`{PARENT}` = '{run.info.run_id}'"
    trials = client.search_runs([run.info.experiment_id], of_sweep, order_by=["attributes.start_time"])
    if trials:
        named = ", ".join(f"{trial.info.run_name} ({trial.info.run_id})" for trial in trials[:3])
        more = f" and {len(trials) - 3} more" if len(trials) > 3 else ""
        raise UserError(
            f"run={run.info.run_id}: '{run.info.run_name}' is a sweep, expected one of its trials: {named}{more}"
        )


def _check_database(uri: str) -> None:
    """Raise UserError unless the file is MLflow's: it would make one of any other."""
    path = Path(uri.removeprefix("sqlite:///"))
    if not path.exists():
        raise UserError(f"tracking.uri={uri}: no such file")
    with _one_line_each(uri), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        if not database.execute("SELECT name FROM sqlite_master WHERE name = 'experiments'").fetchall():
            raise UserError(f"tracking.uri={uri}: not a database of MLflow's")


@contextmanager
def _one_line_each(uri: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # MLflow, SQLAlchemy, requests and each store of artifacts have their own
        raise UserError(f"tracking.uri={redact(uri)}: can't be read ({one_line(error)})") from error
