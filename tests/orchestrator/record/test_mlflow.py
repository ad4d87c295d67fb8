"""The recorder against a real MLflow with a SQLite store."""

import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mlflow_fakes import assert_shipped_once, client, held, metrics, runs, wait_for, write, written
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from orchestrator.job.curves import Curves
from orchestrator.record import mlflow, wal
from orchestrator.record.mlflow import Recorder

CONFIG = {
    "task": {"rewards": {"goal": {"weight": 15.0}}},
    "policy": {"hidden_dims": [64, 64]},
    "seed": 1,
    "sweep": None,
}


@pytest.fixture
def lines():
    return []


@pytest.fixture
def recorder(uri, lines):
    made = []

    def make(at=uri, **options):
        made.append(Recorder(at, "nav", tell=lines.append, **({"ship_every": 0.2} | options)))
        return made[-1]

    yield make
    for one in made:
        one.close("interrupted", 0)


def test_a_sweep_is_a_parent_with_its_trials(recorder, uri, tmp_path, lines):
    r = recorder()
    began = 1_790_000_000.0
    r.start_study("study-uid", "weights", started=began, tags={"study": "weights", "git_commit": "abc"})
    for number, outcome in enumerate(("finished", "pruned", "failed")):
        folder = tmp_path / f"trial_{number:04d}"
        write(folder, range(1, 12))
        tags = {"study": "weights", "trial": number, "seed": 7, "device": "cpu", "failure": None}
        searched = {"task.rewards.goal.weight": 15.0}
        times = {"started": began + 10 * number}, {"ended": began + 10 * number + 5.25}
        r.start_trial(number, folder, f"uid-{number}", config=CONFIG, searched=searched, tags=tags, **times[0])
        r.end_trial(number, outcome, tags={"failure": "diverged: loss"} if outcome == "failed" else {}, **times[1])
    report = r.close("finished", 20)
    assert report.unfinished == ()
    assert report.reason is None
    assert lines == []

    assert client(uri).get_experiment_by_name("nav").tags["mlflow.experimentKind"] == "custom_model_development"
    found = runs(uri)
    parent = found.pop("study-uid")
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == "weights"
    assert parent.info.start_time == 1_790_000_000_000
    assert abs(parent.info.end_time / 1000 - time.time()) < 20
    assert parent.data.tags["git_commit"] == "abc"
    assert "mlflow.parentRunId" not in parent.data.tags
    assert [found[f"uid-{i}"].info.status for i in range(3)] == ["FINISHED", "KILLED", "FAILED"]
    for number in range(3):
        run = found[f"uid-{number}"]
        assert run.info.run_id == r.run_id(number)
        assert run.info.run_name == f"trial_{number:04d}"
        assert run.info.start_time == 1_790_000_000_000 + 10_000 * number
        assert run.info.end_time - run.info.start_time == 5250
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags["trial"] == str(number)
        assert run.data.tags["outcome"] == ("finished", "pruned", "failed")[number]
        assert "interrupted" not in run.data.tags
        assert run.data.params == {
            "task.rewards.goal.weight": "15.0",
            "search.task.rewards.goal.weight": "15.0",
            "policy.hidden_dims": "[64, 64]",
            "seed": "1",
            "sweep": "null",
        }
        assert_shipped_once(uri, run.info.run_id, tmp_path / f"trial_{number:04d}")
    assert "failure" not in found["uid-0"].data.tags
    assert found["uid-2"].data.tags["failure"] == "diverged: loss"
    assert report.points == 3 * (11 * 9 + 2)


def test_a_single_run_has_no_parent(recorder, uri, tmp_path):
    r = recorder()
    r.start_trial(0, tmp_path / "t", "single", name="nav-1", config={}, tags={})
    r.end_trial(0, "finished")
    r.close("finished", 20)
    (run,) = runs(uri).values()
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "nav-1"
    assert "mlflow.parentRunId" not in run.data.tags


def test_metrics_arrive_while_the_job_runs(recorder, uri, tmp_path):
    r = recorder()
    folder = tmp_path / "t"
    r.start_trial(0, folder, "u")
    run_id = wait_for(lambda: r.run_id(0))
    write(folder, range(1, 4))
    wait_for(lambda: len(held(uri, run_id).get("Train/env_steps", [])) == 3)
    assert client(uri).get_run(run_id).info.status == "RUNNING"
    write(folder, range(4, 6))
    wait_for(lambda: len(held(uri, run_id)["Train/env_steps"]) == 5)
    r.end_trial(0, "finished")
    r.close("finished", 20)
    assert_shipped_once(uri, run_id, folder)


def test_many_steps_need_many_batches(recorder, uri, database, tmp_path, lines, monkeypatch):
    monkeypatch.setattr(mlflow, "_SILENT", 0.05)
    folder = tmp_path / "t"
    extra = {f"More/metric_{i}": float(i) for i in range(40)}
    write(folder, range(1, 101), extra)
    r = recorder()
    r.start_trial(0, folder, "u")
    wait_for(lambda: r.run_id(0))
    r.end_trial(0, "finished")
    assert r.close("finished", 20).unfinished == ()
    assert_shipped_once(uri, r.run_id(0), folder)
    assert [line.partition(". ")[0] for line in lines] == [
        f"writing the rest to {database}, 20 s at most without an answer; Ctrl-C ends this"
    ]


def test_a_job_that_goes_back_to_a_checkpoint(recorder, uri, tmp_path):
    """Steps that are written again are not shipped again, and no later one is missed."""
    folder = tmp_path / "t"
    write(folder, range(1, 11))
    r = recorder()
    r.start_trial(0, folder, "u")
    wait_for(lambda: r.run_id(0) and len(held(uri, r.run_id(0)).get("Train/env_steps", [])) == 10)
    wal.truncate(folder / "metrics.jsonl", 6)
    time.sleep(0.5)
    write(folder, range(7, 15))
    r.end_trial(0, "finished")
    r.close("finished", 20)
    assert_shipped_once(uri, r.run_id(0), folder)


def test_interrupted_runs_are_closed_and_reopened(recorder, uri, tmp_path):
    folder = tmp_path / "t"
    first = recorder()
    first.start_study("s", "study")
    first.start_trial(0, folder, "u", config=CONFIG)
    write(folder, range(1, 6))
    assert first.close("interrupted", 20).unfinished == ()
    found = runs(uri)
    for uid in ("s", "u"):
        assert found[uid].info.status == "KILLED"
        assert found[uid].data.tags["interrupted"] == "true"
    assert_shipped_once(uri, found["u"].info.run_id, folder)

    second = recorder()
    second.start_study("s", "study")
    second.start_trial(0, folder, "u", config=CONFIG)
    wait_for(lambda: runs(uri)["u"].info.status == "RUNNING")
    assert "interrupted" not in runs(uri)["u"].data.tags
    write(folder, range(6, 9))
    second.end_trial(0, "finished")
    assert second.close("finished", 20).unfinished == ()
    again = runs(uri)
    assert {uid: run.info.run_id for uid, run in again.items()} == {uid: run.info.run_id for uid, run in found.items()}
    for uid in ("s", "u"):
        assert again[uid].info.status == "FINISHED"
        assert "interrupted" not in again[uid].data.tags
    assert_shipped_once(uri, again["u"].info.run_id, folder)


def test_a_trial_may_go_on_within_one_recorder(recorder, uri, tmp_path):
    folder = tmp_path / "t"
    write(folder, range(1, 4))
    r = recorder()
    r.start_trial(0, folder, "u")
    r.end_trial(0, "interrupted")
    wait_for(lambda: r.run_id(0) and runs(uri)["u"].info.status == "KILLED")
    r.start_trial(0, folder, "u")
    write(folder, range(4, 7))
    r.end_trial(0, "finished")
    assert r.close("finished", 20).unfinished == ()
    run = runs(uri)["u"]
    assert run.info.status == "FINISHED"
    assert "interrupted" not in run.data.tags
    assert_shipped_once(uri, run.info.run_id, folder)


def test_what_is_complete_is_left_alone(recorder, uri, tmp_path):
    """A driver that was started again tells of all its trials: nothing is written for those that have all."""
    folder = tmp_path / "t"
    write(folder, range(1, 4))
    for _ in range(2):
        r = recorder()
        r.start_trial(0, folder, "u", tags={"k": "v"})
        r.end_trial(0, "finished")
        report = r.close("finished", 20)
        assert report.unfinished == ()
    assert report.points == 0
    assert runs(uri)["u"].info.status == "FINISHED"
    assert_shipped_once(uri, r.run_id(0), folder)


def test_the_same_study_name_again_is_another_run(recorder, uri, tmp_path):
    """Somebody deleted the study's folder and began again: its steps mustn't be taken for shipped."""
    for uid in ("old", "new"):
        folder = tmp_path / uid
        write(folder, range(1, 4))
        r = recorder()
        r.start_trial(0, folder, uid, tags={"study": "s", "trial": 0})
        r.end_trial(0, "finished")
        r.close("finished", 20)
    assert len(runs(uri)) == 2
    for uid in ("old", "new"):
        assert_shipped_once(uri, runs(uri)[uid].info.run_id, tmp_path / uid)


def test_steps_that_a_new_driver_finds_written_again(recorder, uri, tmp_path):
    """The job went back to its checkpoint between two drivers: other times, another `Perf/`, yet one point a step."""
    folder = tmp_path / "t"
    write(folder, range(1, 11), {"Perf/total_fps": 1.0})
    first = recorder()
    first.start_trial(0, folder, "u")
    first.close("interrupted", 20)
    before = held(uri, first.run_id(0))
    wal.truncate(folder / "metrics.jsonl", 6)
    log = wal.MetricsLog(folder / "metrics.jsonl")
    for step in range(7, 13):
        log.append(wal.Record(step, 1_800_000_000.0 + step, metrics(step, {"Perf/total_fps": 2.0})))
    log.close()
    second = recorder()
    second.start_trial(0, folder, "u")
    second.end_trial(0, "finished")
    assert second.close("finished", 20).unfinished == ()
    for name, points in held(uri, second.run_id(0)).items():
        assert points[: len(before[name])] == before[name]
        assert [point for point in points if point[0] > 10] == [p for p in written(folder)[name] if p[0] > 10]
        assert len(points) == len({step for step, _, _ in points})


DRIVER = """
import sys, time
from pathlib import Path
from orchestrator.record.mlflow import Recorder
uri, folder, recorded = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
r = Recorder(uri, "nav", ship_every=0.01)
r.start_study("s", "study")
r.start_trial(0, folder, "u", config={"a": {"b": 1}}, tags={"seed": 3}, artifacts=[folder / "config.yaml"])
while r.run_id(0) is None:
    time.sleep(0.01)
print("recording", flush=True)
time.sleep(60)
"""


def test_a_driver_that_is_killed_at_any_moment(recorder, uri, tmp_path):
    """Killed with -9 again and again while it ships; the next one goes on. Nothing is lost, nothing is twice."""
    folder = tmp_path / "t"
    write(folder, range(1, 400))
    (folder / "config.yaml").write_text("a: 1\n")
    extra = {f"More/metric_{i}": float(i) for i in range(40)}
    last = 400
    for moment in (0.02, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, uri, str(folder), ""], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "recording\n"
        write(folder, range(last, last + 200), extra)
        last += 200
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert runs(uri)["u"].info.status == "RUNNING"
    write(folder, range(last, last + 3))
    r = recorder()
    r.start_study("s", "study")
    r.start_trial(0, folder, "u", config={"a": {"b": 1}}, tags={"seed": 3}, artifacts=[folder / "config.yaml"])
    r.end_trial(0, "finished")
    assert r.close("finished", 30).unfinished == ()
    found = runs(uri)
    assert len(found) == 2
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    assert found["u"].data.params == {"a.b": "1"}
    assert_shipped_once(uri, found["u"].info.run_id, folder)


def test_tensorboard_and_mlflow_hold_the_same(recorder, uri, tmp_path):
    """A job's curves, interrupted and gone on with, as both show them in the end."""
    folder = tmp_path / "t"
    folder.mkdir()
    r = recorder()
    r.start_trial(0, folder, "u")
    for resume, steps in ((None, range(1, 9)), (6, range(7, 13))):
        curves = Curves(folder, resume_step=resume)
        for step in steps:
            curves.write(step, metrics(step))
        curves.close()
    r.end_trial(0, "finished")
    assert r.close("finished", 20).unfinished == ()
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    tensorboard = {
        name: [(e.step, round(e.wall_time * 1000), e.value) for e in reader.Scalars(name)]
        for name in reader.Tags()["scalars"]
    }
    mlflow = held(uri, r.run_id(0))
    assert tensorboard.keys() == mlflow.keys()
    for name, points in mlflow.items():
        assert tensorboard[name] == [(step, at, float(np.float32(value))) for step, at, value in points]


def test_non_finite_values_are_counted_not_shipped(recorder, uri, tmp_path):
    folder = tmp_path / "t"
    write(folder, range(1, 3))
    write(folder, range(3, 6), {"Loss/value": math.nan, "Loss/surrogate": math.inf, "PPO/kl_mean": -math.inf})
    r = recorder()
    r.start_trial(0, folder, "u")
    r.end_trial(0, "failed")
    r.close("finished", 20)
    run = runs(uri)["u"]
    assert run.data.tags["nonfinite_metrics"] == "9"
    assert "Loss/value" not in run.data.metrics
    assert_shipped_once(uri, run.info.run_id, folder)


def test_artifacts(recorder, uri, database, tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "config.yaml").write_text("tracking:\n  uri: postgresql://ann:hunter2@db/ml\n")
    (folder / "policy.onnx").write_bytes(b"\x08\x01postgresql://ann:hunter2@db")
    r = recorder()
    r.start_trial(0, folder, "u", artifacts=[folder / "config.yaml"])
    r.end_trial(0, "finished", artifacts=[folder / "policy.onnx", folder / "eval.json"])
    r.close("finished", 20)
    api, run = client(uri), runs(uri)["u"]
    assert {file.path for file in api.list_artifacts(run.info.run_id)} == {"config.yaml", "policy.onnx"}
    root = Path(database).parent / "nav"
    assert run.info.artifact_uri.startswith(root.as_uri())
    assert Path(api.download_artifacts(run.info.run_id, "config.yaml")).read_text() == (
        "tracking:\n  uri: postgresql://***@db/ml\n"
    )
    assert (folder / "config.yaml").read_text().count("hunter2") == 1


def test_a_run_that_somebody_deleted_does_not_stop_the_others(recorder, uri, tmp_path, lines):
    r = recorder()
    for number in (0, 1):
        write(tmp_path / str(number), range(1, 3))
        r.start_trial(number, tmp_path / str(number), f"u{number}")
    wait_for(lambda: r.run_id(0) and r.run_id(1) and held(uri, r.run_id(1)))
    client(uri).delete_run(r.run_id(0))
    for number in (0, 1):
        write(tmp_path / str(number), range(3, 6))
        r.end_trial(number, "finished")
    report = r.close("finished", 20)
    assert report.unfinished == ("trial_0000",)
    assert_shipped_once(uri, r.run_id(1), tmp_path / "1")
    assert len(lines) == 2
    assert "refuses trial_0000" in lines[0]
    assert "not fully recorded" in lines[1]


@pytest.mark.parametrize("kind", [None, "genai_development"])
def test_a_deleted_experiment_is_restored(recorder, uri, tmp_path, kind):
    """Shown as one of trainings, unless somebody has said otherwise."""
    api = client(uri)
    api.delete_experiment(api.create_experiment("nav", tags={"mlflow.experimentKind": kind} if kind else None))
    r = recorder()
    r.start_trial(0, tmp_path / "t", "u")
    r.end_trial(0, "finished")
    assert r.close("finished", 20).unfinished == ()
    assert runs(uri)["u"].info.status == "FINISHED"
    shown = api.get_experiment_by_name("nav").tags["mlflow.experimentKind"]
    assert shown == (kind or "custom_model_development")


def test_a_locked_database_is_waited_for(recorder, uri, database, tmp_path, monkeypatch):
    folder = tmp_path / "t"
    write(folder, range(1, 4))
    r = recorder()
    r.start_trial(0, folder, "u")
    wait_for(lambda: r.run_id(0) and held(uri, r.run_id(0)))
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    write(folder, range(4, 8))
    start = time.monotonic()
    r.end_trial(0, "finished")
    assert time.monotonic() - start < 0.1
    report = r.close("finished", 1.0)
    assert time.monotonic() - start < 1.5
    assert report.unfinished == ("trial_0000",)
    assert report.reason == "not done within 1 s"
    other.execute("ROLLBACK")
    other.close()
    again = recorder()
    again.start_trial(0, folder, "u")
    again.end_trial(0, "finished")
    assert again.close("finished", 30).unfinished == ()
    assert_shipped_once(uri, again.run_id(0), folder)


def test_a_file_that_is_no_database_is_told_at_once(recorder, database, lines):
    """MLflow would try ten times, for 100 s, before it says anything."""
    database.write_bytes(b"no database " * 1000)
    recorder().start_study("s", "study")
    wait_for(lambda: lines)
    assert "takes no records (file is not a database): training goes on" in lines[0]


def test_nothing_that_the_driver_calls_waits(recorder, tmp_path):
    """Each call takes a note and returns, also while the thread opens the store."""
    start = time.monotonic()
    r = recorder()
    r.start_study("s", "study")
    r.start_trial(0, tmp_path / "t", "u", config=CONFIG)
    r.update_study(tags={"a": 1})
    r.end_trial(0, "finished")
    assert time.monotonic() - start < 0.1
    r.close("finished", 0)
    assert time.monotonic() - start < 0.5


def test_a_new_store_is_migrated_once_by_two_at_a_time(tmp_path):
    """Two drivers that meet an empty folder at once both record, though neither has the patience to wait so long for a
    server that doesn't answer."""
    folder = tmp_path / "t"
    write(folder, range(1, 3))
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    script = (
        "import sys; from pathlib import Path; from orchestrator.record.mlflow import Recorder\n"
        "r = Recorder(sys.argv[1], 'nav')\n"
        "r.start_trial(0, Path(sys.argv[2]), sys.argv[3]); r.end_trial(0, 'finished')\n"
        "report = r.close('finished', 3); assert not report.unfinished, report"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", script, uri, str(folder), uid], stderr=subprocess.PIPE, text=True)
        for uid in ("a", "b")
    ]
    for process in both:
        told = process.communicate()[1].splitlines()
        assert process.returncode == 0, told
        file = uri.removeprefix("sqlite:///")
        opening = (
            f"writing the rest to {file}, as long as opening it takes; Ctrl-C ends this. {folder} keeps what is not "
            "recorded, and the next run of this experiment records the rest"
        )
        assert told in ([], [opening])
    assert {uid: run.info.status for uid, run in runs(uri).items()} == {"a": "FINISHED", "b": "FINISHED"}
    assert sorted(os.listdir(tmp_path / "new")) == ["mlflow.db", "mlflow.db.lock"]
