"""A job that writes metrics, an MLflow server, and the comparison of what was written with what MLflow holds."""

import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from orchestrator.record import wal
from orchestrator.record.run import UID


def metrics(step, extra=None):
    values = {f"Group/metric_{i}": math.sin(step * 1.7 + i) for i in range(8)}
    if step % 5 == 0:
        values["Eval/success_rate"] = step / 1000
    return values | {"Train/env_steps": step * 8192.0} | (extra or {})


def write(folder, steps, extra=None):
    """Append steps to a trial's log, as its job would."""
    folder.mkdir(exist_ok=True, parents=True)
    log = wal.MetricsLog(folder / "metrics.jsonl")
    for step in steps:
        log.append(wal.Record(step, 1_790_000_000.0 + step * 0.25, metrics(step, extra)))
    log.close()


def client(uri):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def runs(uri, experiment="nav"):
    """{uid: run} of an experiment; fails when a uid has two runs."""
    api = client(uri)
    found = api.get_experiment_by_name(experiment)
    result = {}
    for run in api.search_runs([found.experiment_id]) if found else []:
        uid = run.data.tags[UID]
        assert uid not in result, f"two runs for {uid}"
        result[uid] = run
    return result


def held(uri, run_id):
    """{name: [(step, milliseconds, value)]} that MLflow holds of a run, in the order of steps."""
    api = client(uri)
    names = api.get_run(run_id).data.metrics
    return {
        name: sorted((p.step, p.timestamp, p.value) for p in api.get_metric_history(run_id, name)) for name in names
    }


def written(folder):
    """The same of a trial's log, finite values only."""
    result = {}
    for record in wal.read(folder / "metrics.jsonl"):
        for name, value in record.metrics.items():
            if math.isfinite(value):
                result.setdefault(name, []).append((record.step, round(record.time * 1000), value))
    return result


def assert_shipped_once(uri, run_id, folder):
    """Every point of the log is in MLflow with its step, time and value, and nothing else is."""
    assert held(uri, run_id) == written(folder)


def wait_for(condition, timeout=20.0, what="it"):
    """Wait until `condition()` is true and return its value."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout} s"
        time.sleep(0.02)
    return value


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A real `mlflow server` on loopback that can be killed and started again."""

    def __init__(self, database, port):
        self.database, self.port, self.uri = database, port, f"http://127.0.0.1:{port}"
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.database}", "--workers", "1"]
        command += ["--artifacts-destination", str(self.database.parent / "artifacts")]
        environment = os.environ | {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        environment.pop("PYTEST_CURRENT_TEST", None)
        with open(self.database.with_suffix(".log"), "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
        wait_for(self.healthy, 60, "the start of the server")

    def healthy(self):
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def kill(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
