"""A study's champion in MLflow's model registry, and what the sweep's own run is told."""

import harness
import numpy as np
import pytest
from fake_jobs import keep_policy, luck
from mlflow.exceptions import MlflowException
from mlflow_fakes import client, runs

from orchestrator.record.mlflow import Recorder
from orchestrator.search.confirm import fresh_seeds


def record(uri, tmp_path, champion):
    """A study of two trials, one of them its champion; as a driver tells it, also one that is started again."""
    recorder = Recorder(uri, "nav")
    recorder.start_study("study-uid", "weights")
    for name in ("a", "b"):
        recorder.start_trial(name, tmp_path / name, name, name=name)
        recorder.end_trial(name, "finished", policy=tmp_path / name / "policy.npz")
    recorder.update_study(tags={"confirmed": 7}, metrics={"Confirm/difference": {7: 0.25, 9: float("nan")}})
    recorder.name_champion(champion, "weights", "better than the baseline")
    report = recorder.close("finished", 60)
    assert report.unfinished == ()
    return report


@pytest.fixture
def policies(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        keep_policy(tmp_path / name)


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
    assert record(uri, tmp_path, "a").withdrawn is None
    assert list(client(uri).search_registered_models()) == []


def test_a_winner_without_a_policy_leaves_no_other_champion(uri, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    keep_policy(tmp_path / "a")
    record(uri, tmp_path, "a")
    recorder = Recorder(uri, "nav")
    recorder.start_study("study-uid", "weights")
    recorder.start_trial("b", tmp_path / "b", "b", name="b")
    recorder.update_study(tags={"confirmed": 9}, metrics={"Confirm/difference": {9: 0.5}})
    recorder.name_champion("b", "weights", "better still")
    report = recorder.close("finished", 60)
    assert (report.unfinished, report.withdrawn) == ((), "a")
    (model,) = client(uri).search_registered_models()
    assert model.aliases == {}


def test_a_study_without_a_winner_withdraws_its_own_champion_alone(policies, uri, tmp_path):
    record(uri, tmp_path, "a")
    for study, withdrawn in (("another-uid", None), ("study-uid", "a")):
        assert client(uri).get_model_version_by_alias("weights", "champion").run_id == runs(uri)["a"].info.run_id
        recorder = Recorder(uri, "nav")
        recorder.start_study(study, "weights")
        recorder.update_study(tags={"confirmed": "none"}, metrics={"Confirm/difference": {7: 0.25}})
        recorder.withdraw_champion("weights")
        report = recorder.close("finished", 60)
        assert (report.unfinished, report.withdrawn) == ((), withdrawn)
    with pytest.raises(MlflowException, match="alias champion not found"):
        client(uri).get_model_version_by_alias("weights", "champion")
    assert len(client(uri).search_model_versions("name='weights'")) == 1  # it is still there to be looked at


def test_where_there_is_no_champion_none_is_withdrawn(uri):
    recorder = Recorder(uri, "nav")
    recorder.start_study("study-uid", "weights")
    recorder.withdraw_champion("weights")
    report = recorder.close("finished", 60)
    assert (report.unfinished, report.withdrawn) == ((), None)
    assert list(client(uri).search_registered_models()) == []


def test_a_longer_study_that_names_no_winner_any_more_says_what_it_has_withdrawn(uri, tmp_path):
    seeds = fresh_seeds(1, [1], 3)
    lucks = [luck(seed) for seed in seeds]
    # Half an interval of three seeds is t s / sqrt(3): 0.08 for t = 4.3, where trial 1 alone is compared, and 0.12 for
    # t = 6.2 beside trial 2. The difference itself is 0.1.
    spread = 0.033 / np.std(lucks, ddof=1)
    harness.behave(
        tmp_path / "study",
        all={"success": 0.5},
        _1={"success": 0.6},
        _2={"success": 0.7},
        confirm={"policy": True},
        confirm_1={"success": 0.6 - spread * np.mean(lucks), "spread": spread},
        confirm_2={"success": 0.5},
    )
    told = []
    for trials, champions in ((2, 1), (3, 0)):
        more = (f"sweep.n_trials={trials}", "confirm.top_k=1", "confirm.seeds=3")
        driver = harness.driver(harness.configure(tmp_path, *harness.SWEEP, *more), recorder=Recorder(uri, "nav"))
        assert driver.run() == 0
        told.append(driver.status.findings)
        (model,) = client(uri).search_registered_models()
        assert len(model.aliases) == champions
    assert told[0][0].startswith("better than the baseline: trial 1, by ")
    assert told[0][-1] == "model: models:/study@champion"
    assert told[1][0].startswith("nothing better than the baseline was shown")
    best = max(seeds, key=luck)
    assert told[1][-1] == f"models:/study@champion is withdrawn: confirm_0001_seed_{best} had it, and is no winner now"
