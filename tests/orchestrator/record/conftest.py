"""Real MLflow stores for the recorder's tests: SQLite files, migrated once, and a server on loopback."""

import fcntl
import os
import shutil

import pytest
from mlflow_fakes import Server, free_port

from orchestrator.record.store import Store


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """An empty, migrated SQLite store. Migrations take seconds: done once, also by several workers."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    path = base / "migrated-store" / "mlflow.db"
    path.parent.mkdir(exist_ok=True)
    with open(path.with_suffix(".test-lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            Store(f"sqlite:///{path}", "unused")
    return path


@pytest.fixture
def database(migrated, tmp_path):
    """The file of a store of this test alone."""
    folder = tmp_path / "mlruns"
    folder.mkdir()
    return shutil.copy(migrated, folder / "mlflow.db")


@pytest.fixture
def uri(database):
    return f"sqlite:///{database}"


@pytest.fixture(scope="session")
def server(migrated, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    server = Server(shutil.copy(migrated, folder / "mlflow.db"), free_port())
    server.start()
    yield server
    server.kill()
