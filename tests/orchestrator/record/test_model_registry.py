"""A study's champion in MLflow's model registry, and what the sweep's own run is told."""

import numpy as np
import pytest
from mlflow_fakes import client, runs

from orchestrator.record.mlflow import Recorder


def keep_policy(folder):
    """A smallest `policy.npz`: two observations, one action."""
    folder.mkdir()
    arrays = {"weight_0": np.ones((1, 2), np.float32), "bias_0": np.zeros(1, np.float32)}
    normaliser = {"mean": np.zeros(2, np.float32), "std": np.ones(2, np.float32)}
    np.savez(folder / "policy.npz", **normaliser, **arrays, activation="elu", output="mean")
    return folder / "policy.npz"


def record(uri, tmp_path, champion):
    """A study of two trials, one of them its champion; as a driver tells it, also one that is started again."""
    recorder = Recorder(uri, "nav")
    recorder.start_study("study-uid", "weights")
    for name in ("a", "b"):
        recorder.start_trial(name, tmp_path / name, name, name=name)
        recorder.end_trial(name, "finished", policy=tmp_path / name / "policy.npz")
    recorder.update_study(tags={"confirmed": 7}, metrics={"Confirm/difference": {7: 0.25, 9: float("nan")}})
    recorder.name_champion(champion, "weights", "better than the baseline")
    assert recorder.close("finished", 60).unfinished == ()


@pytest.fixture
def policies(tmp_path):
    return [keep_policy(tmp_path / name) for name in ("a", "b")]


def test_the_champion_is_a_version_with_an_alias(policies, uri, tmp_path):
    for _ in range(2):
        record(uri, tmp_path, "b")
    version = client(uri).get_model_version_by_alias("weights", "champion")
    assert version.run_id == runs(uri)["b"].info.run_id
    assert version.description == "better than the baseline"
    assert len(client(uri).search_model_versions("name='weights'")) == 1  # told twice, registered once
    import mlflow

    mlflow.set_tracking_uri(uri)
    model = mlflow.pyfunc.load_model("models:/weights@champion")
    assert model.predict(np.array([[2.0, 3.0]], np.float32)) == pytest.approx(5.0)


def test_the_sweeps_run_has_metrics_by_trial(policies, uri, tmp_path):
    record(uri, tmp_path, "a")
    parent = runs(uri)["study-uid"]
    assert (parent.info.status, parent.data.tags["confirmed"]) == ("FINISHED", "7")
    held = client(uri).get_metric_history(parent.info.run_id, "Confirm/difference")
    assert [(point.step, point.value) for point in held] == [(7, 0.25)]


def test_a_later_champion_takes_the_alias(policies, uri, tmp_path):
    record(uri, tmp_path, "a")
    recorder = Recorder(uri, "nav")
    recorder.start_study("study-uid", "weights")
    recorder.start_trial("b", tmp_path / "b", "b", name="b")
    recorder.end_trial("b", "finished", policy=tmp_path / "b" / "policy.npz")
    while recorder.run_id("b") is None:  # the study goes on: it is no longer the one that had ended
        pass
    recorder.name_champion("b", "weights", "better still")
    assert recorder.close("finished", 60).unfinished == ()
    assert client(uri).get_model_version_by_alias("weights", "champion").run_id == runs(uri)["b"].info.run_id


def test_another_verdict_reaches_a_run_that_had_ended(policies, uri, tmp_path):
    """Though the server was away until all was over."""
    record(uri, tmp_path, "a")
    recorder = Recorder(uri, "nav")
    recorder.start_study("study-uid", "weights")
    recorder.update_study(tags={"confirmed": 9}, metrics={"Confirm/difference": {7: 0.25, 9: 0.5}})
    assert recorder.close("finished", 60).unfinished == ()
    parent = runs(uri)["study-uid"]
    assert (parent.info.status, parent.data.tags["confirmed"]) == ("FINISHED", "9")
    held = client(uri).get_metric_history(parent.info.run_id, "Confirm/difference")
    assert sorted((point.step, point.value) for point in held) == [(7, 0.25), (9, 0.5)]


def test_without_a_policy_there_is_no_champion(uri, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    record(uri, tmp_path, "a")
    assert list(client(uri).search_registered_models()) == []
