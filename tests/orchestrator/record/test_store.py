import sys
from pathlib import Path

import pytest

from orchestrator.errors import UserError
from orchestrator.record.store import check_uri, resolve_uri


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:5000",
        "https://mlflow.example.org/base",
        "sqlite:///mlruns/mlflow.db",
        "sqlite:////tmp/x/mlflow.db",
    ],
)
def test_what_mlflow_takes(uri):
    check_uri(uri)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("", "plain files"),
        ("mlruns", "plain files"),
        ("./mlruns", "plain files"),
        ("/tmp/mlruns", "plain files"),
        ("file:///tmp/mlruns", "plain files"),
        ("C:\\mlruns", "plain files"),
        ("htp://host:5000", "did you mean 'http'?"),
        ("sqllite:///x.db", "did you mean 'sqlite'?"),
        ("localhost:5000", "such as http://host:5000"),
        ("http:/host", "such as http://host:5000"),
        ("http://", "expected a host"),
        ("http://host:port", "expected a host"),
        ("http://ho st", "expected a host"),
        ("sqlite://x.db", "four slashes"),
        ("sqlite:///", "four slashes"),
        ("sqlite:///:memory:", "four slashes"),
        ("sqlite:////tmp", "is a folder"),
        ("sqlite:////etc/passwd/x.db", "/etc/passwd is not a folder"),
        ("mysql+nosuchdriver://host/db", "needs the Python package nosuchdriver"),
        ("not a uri", "expected"),
    ],
)
def test_what_it_does_not(uri, expected):
    with pytest.raises(UserError) as error:
        check_uri(uri)
    assert str(error.value).startswith(f"tracking.uri={uri}: ")
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://ann:hunter2@host:5000", "MLFLOW_TRACKING_USERNAME"),
        ("https://hunter2@host", "MLFLOW_TRACKING_TOKEN"),
        ("http://host/?api-key=hunter2", "MLFLOW_TRACKING_TOKEN"),
        ("http://ann:hunter2@host:port", "MLFLOW_TRACKING_PASSWORD"),
        ("htp://ann:hunter2@host", "did you mean 'http'?"),
        ("http:/ann:hunter2@host", "such as http://host:5000"),
        ("ann:hunter2@host", "such as http://host:5000"),
        ("//ann:hunter2@host", "expected"),
        ("postgresql://ann:'hunter2@host/ml", "%27"),
        ("postgresql://ann:a hunter2@host/ml", "%20"),
        ("postgresql://ann:a/hunter2@host/ml", "%2F"),
        ("mysql+no://ann:hunter2@h/d", "needs the Python package no"),
    ],
)
def test_a_refusal_shows_no_credentials(uri, expected):
    with pytest.raises(UserError) as error:
        check_uri(uri)
    assert expected in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_relative_sqlite_path_is_taken_from_the_base():
    base = Path("/srv/project")
    assert resolve_uri("sqlite:///mlruns/mlflow.db", base) == "sqlite:////srv/project/mlruns/mlflow.db"
    assert resolve_uri("sqlite:////tmp/mlflow.db", base) == "sqlite:////tmp/mlflow.db"
    assert resolve_uri("http://host:5000", base) == "http://host:5000"


def test_importing_the_recorder_does_not_import_mlflow():
    """MLflow takes 1.5 s to import, which is the recorder thread's business."""
    import subprocess

    code = "import sys, orchestrator.record.mlflow; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
