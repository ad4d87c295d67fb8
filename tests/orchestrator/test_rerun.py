"""Whether a training came out equal is told rightly."""

import math
from dataclasses import replace

import harness
import pytest

from orchestrator.errors import UserError
from orchestrator.job import spec
from orchestrator.record import wal
from orchestrator.rerun import code_difference, differences, from_folder, rerun, store_of, verdict

CURVES = {
    "Loss/value": {1: 0.5, 2: 0.25},
    "Perf/total_fps": {1: 100.0, 2: 110.0},
    "Eval/success_rate": {2: 0.80},
    "Eval/success_rate_low": {2: 0.75},
    "Eval/success_rate_high": {2: 0.85},
}


def changed(**points):
    return CURVES | {name.replace("__", "/"): values for name, values in points.items()}


class TestVerdict:
    def test_equal_but_for_times(self):
        same, told = verdict(CURVES, changed(Perf__total_fps={1: 90.0, 2: 80.0}))
        assert same
        assert told == "equal bit for bit: 5 points of 4 curves"

    def test_the_last_bit_counts(self):
        other = changed(Loss__value={1: 0.5, 2: math.nextafter(0.25, 1.0)})
        assert differences(CURVES, other) == [("Loss/value", 2)]
        same, told = verdict(CURVES, other)
        assert same  # within the interval
        assert told.startswith("not equal from iteration 2 on (Loss/value: 0.25, now 0.25); within the interval")

    @pytest.mark.parametrize(("now", "same"), [(0.76, True), (0.85, True), (0.74, False), (0.86, False)])
    def test_within_the_interval_or_not(self, now, same):
        within, told = verdict(CURVES, changed(Eval__success_rate={2: now}))
        assert within is same
        assert f"Eval/success_rate 0.8000 [0.7500, 0.8500], now {now:.4f}" in told

    def test_a_run_that_was_stopped_early_is_compared_as_far_as_it_got(self):
        longer = {name: values | {3: 1.0} for name, values in CURVES.items()}
        assert verdict(CURVES, longer)[0]
        same, told = verdict({"Loss/value": {1: 0.5}}, changed(Loss__value={1: 0.4, 2: 0.3}))
        assert not same
        assert "no final evaluation" in told

    def test_nothing_recorded(self):
        nothing = (False, "nothing to compare: the first run has no curves")
        assert verdict({}, CURVES) == verdict({"Perf/total_fps": {1: 100.0}}, CURVES) == nothing


def test_other_code_is_named():
    then = {"git.commit": "a", "git.dirty": "true", "lock.hash": "x", "version.torch": "2.13.0", "seed": "1"}
    now = {"git.commit": "b", "git.dirty": "true", "lock.hash": "x", "version.torch": "2.14.0", "seed": "2"}
    assert code_difference(then, now) == [
        "git.commit: a -> b",
        "version.torch: 2.13.0 -> 2.14.0",
        "the first run's code had changes that were not committed",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "run=<MLflow run id or trial's folder>"),
        (["abc"], "key=value"),
        (["rum=abc"], "did you mean 'run'?"),
        (["run=abc", "tracking.uri=nonsense"], "tracking.uri=nonsense"),
        (["run=abc", "tracking.uri=sqlite:////nowhere/mlflow.db"], "/nowhere/mlflow.db"),
    ],
)
def test_mistakes(arguments, told):
    with pytest.raises(UserError) as error:
        rerun(arguments)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("uri", ["sqlite:////nowhere/own.db", "http://host:5000", None])
def test_a_folder_needs_no_store(tmp_path, uri):
    config = harness.configure(tmp_path, "seed=7")
    config = replace(config, tracking=replace(config.tracking, uri=uri))
    folder = tmp_path / "trial_0000"
    spec.write(spec.TrialSpec(study="nav", number=0, seed=7, params={}, folder=folder, config=config))
    log = wal.MetricsLog(folder / spec.METRICS)
    log.append(wal.Record(1, 1.0, {"Loss/value": 0.5}))
    log.close()
    original = from_folder(folder)
    assert (original.name, original.curves, original.tags) == ("trial_0000", {"Loss/value": {1: 0.5}}, None)
    assert original.config == replace(config, sweep=None)
    assert store_of(original) == uri


def test_where_to_record_must_be_told_when_the_password_was_not_kept(tmp_path):
    config = harness.configure(tmp_path)
    config = replace(config, tracking=replace(config.tracking, uri="postgresql://me:secret@host/db"))
    folder = tmp_path / "trial_0000"
    spec.write(spec.TrialSpec(study="nav", number=0, seed=1, params={}, folder=folder, config=config))
    with pytest.raises(UserError, match=r"credentials were not kept; expected tracking\.uri="):
        rerun([f"run={folder}"])
