"""The MLflow store behind a tracking URI: checked, opened, and its experiment found or made.

Importing this module doesn't import MLflow (1.5 to 2 s); `Store` does.
"""

import fcntl
import importlib.util
import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from orchestrator.errors import UserError, nearest
from orchestrator.record.redact import holds_credentials, redact

# scheme -> the module that SQLAlchemy takes when the URI names none
_DATABASES = {"sqlite": "sqlite3", "postgresql": "psycopg2", "mysql": "MySQLdb", "mssql": "pyodbc"}
_SERVERS = ("http", "https")
KIND, TRAINING = "mlflow.experimentKind", "custom_model_development"
"""What an experiment holds: trainings, not traces of an agent. MLflow 3.17's page goes by a switch of its reader's,
those of other versions by this."""

_EXAMPLES = "http://host:5000, sqlite:///mlruns/mlflow.db or postgresql://host/name"


def check_uri(uri: str, key: str = "tracking.uri") -> None:
    """Raise UserError unless `uri` is one that MLflow can record to. Opens nothing; credentials are not shown.

    A server's are refused, for they can come from the environment; a database has no other place for them.
    """
    secret = holds_credentials(uri)  # where they stand is known only of a URI that is written rightly
    shown = f"{key} (not shown, since it may hold a password)" if secret else f"{key}={uri}"
    scheme, colon, rest = uri.partition(":")
    if not colon or not rest.startswith("//") or scheme == "file":
        if not uri or not colon or scheme == "file" or len(scheme) == 1:
            raise UserError(f"{shown}: MLflow no longer records to plain files; expected {_EXAMPLES}")
        raise UserError(f"{shown}: expected an MLflow URI such as {_EXAMPLES}")
    dialect, _, driver = scheme.partition("+")
    if dialect not in (*_DATABASES, *_SERVERS) or (driver and dialect in _SERVERS):
        hint = nearest(dialect, (*_SERVERS, *_DATABASES))
        raise UserError(f"{shown}: expected an MLflow URI such as {_EXAMPLES}{hint}")
    if dialect == "sqlite":
        _check_sqlite_path(shown, uri)
        return
    if dialect in _SERVERS and secret:
        raise UserError(
            f"{shown}: expected no credentials; put user and password into MLFLOW_TRACKING_USERNAME and "
            f"MLFLOW_TRACKING_PASSWORD, or a token into MLFLOW_TRACKING_TOKEN"
        )
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or re.search(r"""[\s'"]""", uri):
        quoted = "; what else a password holds is written as %20, %27, %2F, ..." if secret else ""
        raise UserError(f"{shown}: expected a host and at most a port after {scheme}://{quoted}")
    if dialect in _DATABASES:
        module = driver or _DATABASES[dialect]
        if importlib.util.find_spec(module) is None:
            raise UserError(f"{shown}: needs the Python package {module}, which is not installed")


def resolve_uri(uri: str, base: Path) -> str:
    """Return `uri` with a relative SQLite path made absolute, starting from `base`; any other URI as it is."""
    if not uri.startswith("sqlite:///"):
        return uri
    return f"sqlite:///{base.absolute() / uri.removeprefix('sqlite:///')}"


class Store:
    """An open tracking store and the experiment that runs go to.

    A new SQLite file is migrated aside, under a file lock, and then renamed: neither two processes at once nor one
    killed in the middle can leave half a store. Its artifacts lie beside it, under absolute paths. A server decides for
    itself.
    """

    def __init__(self, uri: str, experiment: str) -> None:
        """Open; may take seconds, and raises what MLflow raises when the store can't be reached."""
        artifacts = None
        if uri.startswith("sqlite:///"):
            database = Path(uri.removeprefix("sqlite:///"))
            with _locked(database.with_name(f"{database.name}.lock")):
                if not database.exists():
                    _migrate_aside(database)
            artifacts = (database.parent / quote(experiment, safe=" ")).as_uri()
        self.client: Any = connect(uri)
        self.experiment_id = self._experiment(experiment, artifacts)

    def _experiment(self, name: str, artifacts: str | None) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name, artifacts, {KIND: TRAINING}))
            except Exception:
                # another process was faster, or an earlier call arrived though its answer did not
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":  # the name stays taken, so there is no other way to record under it
            self.client.restore_experiment(found.experiment_id)
        if KIND not in found.tags:
            self.client.set_experiment_tag(found.experiment_id, KIND, TRAINING)
        return str(found.experiment_id)


def connect(uri: str) -> Any:
    """An MLflow client. It asks once and gives up soon: whoever waits has a patience of their own."""
    _prepare_environment()
    from mlflow import MlflowClient

    _quiet()
    if not uri.startswith(_SERVERS):
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = 1  # not ten times, in 100 s; there is no switch for it
    return MlflowClient(tracking_uri=uri)


def one_line(error: BaseException) -> str:
    """An error of MLflow's in one line, without credentials and not longer than a screen is wide.

    The libraries wrap what happened in several layers of text: where the system said something, that is it.
    """
    said: BaseException | None = error
    while (
        said is not None and not (isinstance(said, OSError) and said.strerror) and not isinstance(said, sqlite3.Error)
    ):
        said = said.__cause__ or said.__context__
    text = redact(str(said or error)).strip() or type(error).__name__
    line = text.splitlines()[0]
    return line if len(line) <= 160 else f"{line[:159]}…"


def _check_sqlite_path(shown: str, uri: str) -> None:
    path = uri.removeprefix("sqlite:///")
    if path == uri or not path or path.startswith(":memory:"):
        raise UserError(f"{shown}: expected a file after sqlite:/// (four slashes for an absolute path)")
    if path.endswith("/") or Path(path).is_dir():
        raise UserError(f"{shown}: is a folder, expected a file in it")
    for parent in Path(path).absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise UserError(f"{shown}: {parent} is not a folder")
            break


def _prepare_environment() -> None:
    """Set MLflow's switches, which it reads from the environment only; what the user has set stays."""
    for name, value in (
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        # One try, soon over: the recorder has its own patience, and mustn't sit in a call when the driver wants to end.
        ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0"),
        ("MLFLOW_HTTP_REQUEST_TIMEOUT", "10"),
        ("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false"),  # the terminal is the table's
    ):
        os.environ.setdefault(name, value)


def _quiet() -> None:
    """Keep the libraries off the terminal: an outage is one line of ours, not a stack trace of theirs a second."""
    logging.getLogger("mlflow").setLevel(logging.CRITICAL + 1)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the process ends, however it ends
        yield


def _migrate_aside(database: Path) -> None:
    _prepare_environment()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    _quiet()
    aside = database.with_name(f"{database.name}.new")
    aside.unlink(missing_ok=True)
    store = SqlAlchemyStore(f"sqlite:///{aside}", str(database.parent))
    store.engine.dispose()
    aside.rename(database)
