"""Runs are read from MLflow in one way, and what goes wrong there is one line, the same in every command."""

import http.server
import sqlite3
import threading
import time

import harness
import pytest
from mlflow_fakes import free_port, write

from orchestrator import command, diagnose, evaluate, rerun
from orchestrator.config import to_plain
from orchestrator.errors import UserError
from orchestrator.job.spec import as_yaml
from orchestrator.record import wal
from orchestrator.record.mlflow import Recorder
from orchestrator.record.reading import open_run

NO_RUN = "0" * 32


@pytest.fixture
def recorded(uri, tmp_path):
    """A run of a training: its id, folder and config."""
    folder, config = tmp_path / "trial_0007", harness.configure(tmp_path, "seed=5")
    write(folder, range(1, 8))
    (folder / "config.yaml").write_text(as_yaml(to_plain(config)))
    recorder = Recorder(uri, "nav")
    recorder.start_study("s", "weights")
    recorder.start_trial(7, folder, "u", config={"seed": 5}, tags={"trial": 7}, artifacts=[folder / "config.yaml"])
    recorder.end_trial(7, "finished")
    assert recorder.close("finished", 60).unfinished == ()
    return recorder.run_id(7), folder, config


def test_everything_that_was_recorded(recorded, uri):
    run_id, folder, config = recorded
    run = open_run(run_id, uri)
    assert (run.run_id, run.name, run.params["seed"], run.tags["trial"]) == (run_id, "trial_0007", "5", "7")
    assert run.config() == config
    written = wal.read(folder / "metrics.jsonl")
    assert run.curves() == {
        name: {r.step: r.metrics[name] for r in written if name in r.metrics}
        for name in {name for r in written for name in r.metrics}
    }
    with run.artifact("config.yaml") as file:
        assert file.read_text() == (folder / "config.yaml").read_text()
    assert not file.exists()
    for missing in ("policy.npz", "model/artifacts/policy.npz"):
        with run.artifact(missing) as file:
            assert file is None


def test_a_sweeps_own_run_is_no_training(recorded, uri, capsys):
    run_id, *_ = recorded
    sweep = open_run(run_id, uri).tags["mlflow.parentRunId"]
    told = f"error: run={sweep}: 'weights' is a sweep, expected one of its trials: trial_0007 ({run_id})\n"
    for function in (diagnose.run, evaluate.run, rerun.rerun):
        assert command.run(function, "", [f"run={sweep}", f"tracking.uri={uri}"]) == 2
        assert capsys.readouterr().err == told


def test_a_damaged_config(recorded, uri, database):
    run_id, *_ = recorded
    (artifact,) = database.parent.rglob("artifacts/config.yaml")
    for damaged, told in ((b"a: b: c", "its config.yaml is damaged"), (b"\xff\xfe\x00", ""), (b"seed: 1", "")):
        artifact.write_bytes(damaged)
        with pytest.raises(UserError) as error:
            open_run(run_id, uri).config()
        assert told in str(error.value)
        assert "\n" not in str(error.value)


def test_a_store_that_goes_away_after_it_was_opened(recorded, uri, database):
    run_id, *_ = recorded
    run = open_run(run_id, uri)
    with sqlite3.connect(database) as store:
        store.execute("DROP TABLE metrics")
    with pytest.raises(UserError, match=r"^tracking\.uri=sqlite:.*: can't be read \(no such table: metrics\)$"):
        run.curves()


class NotMlflow(http.server.BaseHTTPRequestHandler):
    """Speaks HTTP, and knows nothing."""

    def do_GET(self):
        self.send_error(404)

    def log_message(self, *_):
        pass


@pytest.fixture
def other_server():
    server = http.server.HTTPServer(("127.0.0.1", 0), NotMlflow)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def mistaken(tmp_path, uri, other_server):
    """Name -> (run, tracking.uri, what is told)."""
    (tmp_path / "text.db").write_text("no database at all\n" * 50)
    (tmp_path / "empty.db").touch()
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE trials (number INTEGER)")
    places = {name: f"sqlite:///{tmp_path / name}" for name in ("none.db", "text.db", "empty.db", "other.db")}
    nobody = f"http://127.0.0.1:{free_port()}"
    return {
        "no such run": (NO_RUN, uri, f"run={NO_RUN}: neither a folder nor a run in {uri}"),
        "no URI": (NO_RUN, "nonsense", "tracking.uri=nonsense: "),
        "no such file": (NO_RUN, places["none.db"], f"tracking.uri={places['none.db']}: no such file"),
        "a text": (NO_RUN, places["text.db"], f"{places['text.db']}: can't be read (file is not a database)"),
        "an empty file": (NO_RUN, places["empty.db"], f"{places['empty.db']}: not a database of MLflow's"),
        "something else": (NO_RUN, places["other.db"], f"{places['other.db']}: not a database of MLflow's"),
        "nobody there": (NO_RUN, nobody, f"tracking.uri={nobody}: can't be read ([Errno 111] Connection refused)"),
        "no MLflow there": (NO_RUN, other_server, f"tracking.uri={other_server}: can't be read ("),
    }


@pytest.mark.parametrize("reader", [rerun.rerun, evaluate.run, diagnose.run])
def test_every_command_tells_a_mistake_in_the_same_line(mistaken, tmp_path, capsys, reader):
    before = {file: file.read_bytes() for file in tmp_path.glob("*.db")}
    for name, (run_id, uri, told) in mistaken.items():
        begun = time.monotonic()
        code = command.run(reader, "", [f"run={run_id}", f"tracking.uri={uri}"])
        out, err = capsys.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1), (name, err)
        assert err.startswith("error: ")
        assert told in err
        assert time.monotonic() - begun < 10, name
    assert {file: file.read_bytes() for file in tmp_path.glob("*.db")} == before


def test_credentials_are_not_shown(mistaken):
    host = mistaken["nobody there"][1].removeprefix("http://")
    with pytest.raises(UserError, match="expected no credentials") as error:
        open_run(NO_RUN, f"http://ann:hunter2@{host}")
    assert "hunter2" not in str(error.value)
