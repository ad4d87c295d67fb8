"""The recorder against a real MLflow server that is gone, slow, or answers errors."""

import contextlib
import http.server
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from mlflow_fakes import assert_shipped_once, free_port, held, runs, wait_for, write

from orchestrator.record.mlflow import Recorder

pytestmark = pytest.mark.xdist_group("mlflow-server")  # with --dist loadgroup: one server, not one for each worker

SECRET = "hunter2-not-for-logs"


class Proxy:
    """Stands before the server: passes on, answers 500, answers nothing for a while, or loses the answers."""

    def __init__(self, target):
        self.target, self.mode, self.seen, self.answered_500 = target, "pass", [], 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.seen.append(self.headers.get("Authorization"))
                if proxy.mode == "500":
                    proxy.answered_500 += 1
                    return self.answer(500, b"internal error of the proxy")
                if proxy.mode == "slow":
                    time.sleep(1.5)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
                request = urllib.request.Request(proxy.target + self.path, body or None, headers, method=self.command)
                try:
                    with urllib.request.urlopen(request, timeout=20) as answer:
                        status, data = answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    status, data = error.code, error.read()
                except OSError:
                    status, data = 502, b"no server"
                if proxy.mode == "lose answers" and self.command == "POST":
                    self.close_connection = True
                    return None
                return self.answer(status, data)

            def answer(self, status, data):
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def proxy(server):
    made = Proxy(server.uri)
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def lines():
    return []


@pytest.fixture
def recorder(lines, monkeypatch):
    monkeypatch.setattr("orchestrator.record.mlflow._PATIENCE", (0.1, 0.3))
    made = []

    def make(uri, experiment, **options):
        made.append(Recorder(uri, experiment, tell=lines.append, **({"ship_every": 0.1} | options)))
        return made[-1]

    yield make
    for one in made:
        one.close("interrupted", 0)


def test_a_study_on_a_server(recorder, server, tmp_path, lines):
    folder = tmp_path / "t"
    write(folder, range(1, 301))
    (folder / "config.yaml").write_text("a: 1\n")
    r = recorder(server.uri, "plain")
    r.start_study("s", "study")
    r.start_trial(0, folder, "u", config={"a": 1}, tags={"seed": 1}, artifacts=[folder / "config.yaml"])
    r.end_trial(0, "pruned")
    assert r.close("finished", 30).unfinished == ()
    found = runs(server.uri, "plain")
    assert found["u"].info.status == "KILLED"
    assert found["u"].data.tags["mlflow.parentRunId"] == found["s"].info.run_id
    assert found["u"].data.params == {"a": "1"}
    assert_shipped_once(server.uri, found["u"].info.run_id, folder)
    assert lines == []


@pytest.mark.parametrize("mode", ["500", "slow", "lose answers"])
def test_a_server_in_trouble(recorder, server, proxy, tmp_path, lines, mode):
    """Told once, tried again, and in the end everything is there, once."""
    folder = tmp_path / "t"
    r = recorder(proxy.uri, f"trouble {mode}")
    r.start_study("s", "study")
    r.start_trial(0, folder, "u", config={"a": 1})
    write(folder, range(1, 4))
    wait_for(lambda: r.run_id(0) and held(server.uri, r.run_id(0)))
    proxy.mode = mode
    write(folder, range(4, 250))
    start = time.monotonic()
    r.update_study(tags={"during": "trouble"})
    r.start_trial(1, tmp_path / "t1", "u1", config={"a": 2})
    assert time.monotonic() - start < 0.1
    time.sleep(2.0)
    proxy.mode = "pass"
    write(folder, range(250, 260))
    r.end_trial(0, "finished")
    r.end_trial(1, "failed")
    assert r.close("finished", 30).unfinished == ()
    found = runs(server.uri, f"trouble {mode}")
    assert {uid: run.info.status for uid, run in found.items()} == {"s": "FINISHED", "u": "FINISHED", "u1": "FAILED"}
    assert found["s"].data.tags["during"] == "trouble"
    assert found["u1"].data.params == {"a": "2"}
    assert_shipped_once(server.uri, found["u"].info.run_id, folder)
    if mode == "slow":
        told = [line for line in lines if not line.startswith(f"sending the rest to MLflow at {proxy.uri}, ")]
        assert told == []  # a word on a busy machine, but no trouble
    else:
        first, *between, last = lines
        assert first.startswith(f"MLflow at {proxy.uri} takes no records (")
        assert [line for line in between if not line.startswith(f"waiting for MLflow at {proxy.uri} (")] == []
        assert last == "MLflow takes records again, nothing was lost"


def test_a_server_that_is_killed_and_comes_back(recorder, server, tmp_path, lines):
    """One study is being recorded when the server dies, another begins while there is none."""
    folders = [tmp_path / f"t{i}" for i in range(3)]
    first = recorder(server.uri, "killed")
    first.start_study("s", "study")
    first.start_trial(0, folders[0], "u0")
    write(folders[0], range(1, 30))
    wait_for(lambda: first.run_id(0) and held(server.uri, first.run_id(0)))
    server.kill()
    try:
        write(folders[0], range(30, 60))
        write(folders[1], range(1, 30))
        first.start_trial(1, folders[1], "u1")
        wait_for(lambda: len(lines) == 1)
        second = recorder(server.uri, "late")
        second.start_trial(0, folders[2], "u2")
        write(folders[2], range(1, 30))
        wait_for(lambda: len(lines) == 2)
        assert all("takes no records" in line for line in lines)
    finally:
        server.start()
    for number in (0, 1):
        first.end_trial(number, "finished")
    second.end_trial(0, "finished")
    for r in (first, second):
        assert r.close("finished", 30).unfinished == ()
    found = runs(server.uri, "killed") | runs(server.uri, "late")
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    for number, folder in enumerate(folders):
        assert_shipped_once(server.uri, found[f"u{number}"].info.run_id, folder)


def test_a_server_that_stays_away(recorder, server, tmp_path, lines):
    """The end comes in time, says what is missing, and the next recorder ships it."""
    folder = tmp_path / "t"
    write(folder, range(1, 30))
    nowhere = f"http://127.0.0.1:{free_port()}"
    first = recorder(nowhere, "away")
    first.start_study("s", "study")
    first.start_trial(0, folder, "u")
    first.end_trial(0, "finished")
    start = time.monotonic()
    report = first.close("finished", 3.0)
    assert time.monotonic() - start < 3.5
    assert report.unfinished == ("study", "trial_0000")
    assert report.points == 0
    assert "Connection refused" in str(report.reason)
    waiting, missing = lines[-2:]
    assert waiting.startswith(f"waiting for MLflow at {nowhere} (")
    assert "), 3 s at most without an answer; Ctrl-C ends this. " in waiting
    assert waiting.endswith(f"{folder} keeps what is not recorded, and the same command again records the rest")
    assert missing.startswith("2 runs are not fully recorded in MLflow (")
    assert (folder / "unrecorded").exists()
    second = recorder(server.uri, "away")
    second.start_study("s", "study")
    second.start_trial(0, folder, "u")
    second.end_trial(0, "finished")
    assert second.close("finished", 30).unfinished == ()
    assert_shipped_once(server.uri, runs(server.uri, "away")["u"].info.run_id, folder)
    assert not (folder / "unrecorded").exists()


@pytest.mark.parametrize("where", ["environment", "uri"])
def test_credentials_are_used_and_never_shown(recorder, server, proxy, tmp_path, lines, monkeypatch, capfd, where):
    folder = tmp_path / "t"
    write(folder, range(1, 10))
    uri = proxy.uri
    if where == "environment":
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)
    else:
        uri = proxy.uri.replace("://", f"://ann:{SECRET}@")
    (folder / "config.yaml").write_text(
        f"tracking:\n  uri: {uri}\n  again: {SECRET if where == 'environment' else ''}\n"
    )
    config = {"tracking": {"uri": f"http://ann:{SECRET}@host:5000"}}
    r = recorder(uri, f"secret {where}")
    r.start_trial(
        0, folder, "u", config=config, tags={"uri": config["tracking"]["uri"]}, artifacts=[folder / "config.yaml"]
    )
    wait_for(lambda: r.run_id(0) and held(server.uri, r.run_id(0)))
    proxy.mode = "500"
    r.start_trial(1, tmp_path / "t1", "u1")
    wait_for(lambda: lines)
    proxy.http.shutdown()
    proxy.http.server_close()
    write(folder, range(10, 20))
    report = r.close("finished", 1.5)
    assert report.reason
    assert any(given and given.startswith("Basic ") for given in proxy.seen)
    run = runs(server.uri, f"secret {where}")["u"]
    from mlflow import MlflowClient

    artifact = MlflowClient(tracking_uri=server.uri).download_artifacts(run.info.run_id, "config.yaml", str(tmp_path))
    shown = [*lines, str(report), str(run.to_dictionary()), Path(artifact).read_text(), *capfd.readouterr()]
    assert not [text for text in shown if SECRET in text]
    assert run.data.params["tracking.uri"] == "http://***@host:5000"
