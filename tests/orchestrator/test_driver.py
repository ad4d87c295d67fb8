"""The whole driver on jobs that learn nothing."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import harness
import pytest
import yaml

from orchestrator.drive import drive
from orchestrator.errors import UserError
from orchestrator.record import wal


def test_a_sweep_runs_its_trials_and_writes_the_best(tmp_path: Path) -> None:
    recorder = harness.Recorded()
    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=5")
    assert harness.driver(config, recorder=recorder).run() == 0
    folder = tmp_path / "study"
    trials = harness.study_trials(folder)
    assert [t.number for t in trials] == list(range(5))
    assert harness.states(folder) == "CCCCC"
    assert trials[0].params["task.rewards.goal.weight"] == 15.0  # the baseline is today's config
    for trial in trials:
        told = json.loads((folder / f"trial_{trial.number:04d}" / "trial.json").read_text())
        assert told["params"]["task.rewards.goal.weight"] == trial.params["task.rewards.goal.weight"]
        written = yaml.safe_load((folder / f"trial_{trial.number:04d}" / "config.yaml").read_text())
        assert written["task"]["rewards"]["goal"]["weight"] == trial.params["task.rewards.goal.weight"]
        assert trial.value == pytest.approx(trial.params["task.rewards.goal.weight"] / 100 * (4 + 6 + 8) / 24)
        assert told["mlflow_run_id"] == f"id of trial_{trial.number:04d}"
    best = max(trials, key=lambda t: t.value)
    again = harness.configure_best(tmp_path / "again", folder)
    assert again.task.rewards["goal"].weight == best.params["task.rewards.goal.weight"]
    assert (again.sweep, again.task.rooms.name, again.algorithm.iterations) == (None, "dense", 8)
    assert recorder.calls[0] == ("study", "study")
    assert recorder.calls[-1] == ("close", "finished")
    assert {c for c in recorder.calls if c[0] == "end"} == {("end", f"trial_000{n}", "finished") for n in range(5)}


def test_a_failed_trial_never_stops_the_sweep(tmp_path: Path) -> None:
    harness.behave(
        tmp_path / "study", _1={"do": "diverge"}, _2={"do": "raise"}, _3={"do": "crash"}, _4={"do": "crash once"}
    )
    driver = harness.sweep(tmp_path, "sweep.n_trials=6", "launcher.max_retries=1")
    assert driver.run() == 0
    assert harness.states(tmp_path / "study") == "CFFFCC"
    reasons = [t.user_attrs.get("reason") for t in harness.study_trials(tmp_path / "study")]
    assert reasons[1] == "diverged: loss is nan at iteration 5"
    assert reasons[2] == "exit code 1: ValueError: no such room (2 attempts)"
    assert reasons[3] == "killed by SIGSEGV (2 attempts)"
    result = json.loads((tmp_path / "study" / "trial_0003" / "result.json").read_text())
    assert (result["status"], result["reason"]) == ("failed", reasons[3])


def test_a_job_that_died_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", _0={"do": "crash once"})
    assert harness.sweep(tmp_path, "sweep.n_trials=1").run() == 0
    starts = (tmp_path / "study" / "trial_0000" / "starts").read_text().splitlines()
    assert [line.split()[0] for line in starts] == ["0", "3"]
    assert [r.step for r in wal.read(tmp_path / "study" / "trial_0000" / "metrics.jsonl")] == list(range(1, 9))
    assert json.loads((tmp_path / "study" / "trial_0000" / "trial.json").read_text())["attempt"] == 1


def test_what_would_go_wrong_again_is_not_tried_again(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", _1={"do": "mistake"})
    driver = harness.sweep(tmp_path, "sweep.n_trials=3", screen=(screen := harness.Quiet()))
    assert driver.run() == 0
    assert harness.states(tmp_path / "study") == "CFC"
    reason = "policy.hidden_dims=[8]: expected [16, 16], as in its checkpoint"
    assert harness.study_trials(tmp_path / "study")[1].user_attrs["reason"] == reason
    assert driver.status.views["trial_0001"].reason == reason
    own = tmp_path / "study" / "trial_0001"
    result = json.loads((own / "result.json").read_text())
    assert (result["status"], result["reason"]) == ("failed", reason)
    assert json.loads((own / "trial.json").read_text())["started"] < result["ended"] < time.time()
    assert len((own / "starts").read_text().splitlines()) == 1
    assert screen.notes == []


def test_the_mistake_of_a_single_run_is_its_exit_code(tmp_path: Path) -> None:
    harness.behave(tmp_path / "nav", all={"do": "mistake"})
    config = harness.configure(tmp_path, "tracking.uri=null", "algorithm.iterations=8", "evaluation.every=2")
    options = {"entry": "fake_jobs:train", "preload": harness.PRELOAD, "warm": None}
    assert drive(config, options, {})[0] == 2


def test_a_full_disk_fails_no_trial(tmp_path: Path) -> None:
    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=4")
    study = tmp_path / "study"
    harness.behave(study, _1={"do": "fill the disk"})
    with pytest.raises(OSError, match=r"trial_0001: .*No space left on device; with space again"):
        harness.driver(config).run()
    assert not (study / "trial_0001" / "result.json").exists()
    harness.behave(study)
    again = harness.driver(config)
    assert again.run() == 0
    assert [view.state for view in again.status.views.values()] == ["finished"] * 4


def test_a_job_without_a_sign_of_life_is_killed_and_goes_on(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", _0={"do": "hang"})
    screen = harness.Quiet()
    assert harness.sweep(tmp_path, "sweep.n_trials=1", "launcher.hang_timeout=1", screen=screen).run() == 0
    assert "no sign of life for 1 s; starting it again" in screen.notes[0]
    assert len((tmp_path / "study" / "trial_0000" / "starts").read_text().splitlines()) == 2


def test_trials_far_behind_are_pruned_but_never_the_baseline(tmp_path: Path) -> None:
    harness.behave(
        tmp_path / "study", all={"success": 0.9, "seconds": 0.05}, _0={"success": 0.01}, _3={"success": 0.02}
    )
    pruner = "sweep.pruner={_target_: optuna.pruners.PercentilePruner, percentile: 75.0, n_startup_trials: 1}"
    driver = harness.sweep(tmp_path, "sweep.n_trials=4", pruner, "algorithm.iterations=40")
    assert driver.run() == 0
    assert harness.states(tmp_path / "study") == "CCCP"
    result = json.loads((tmp_path / "study" / "trial_0003" / "result.json").read_text())
    assert result["status"] == "pruned"
    assert "too far behind" in result["reason"]


def test_a_sweep_of_nothing_but_failures_has_failed(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", all={"do": "diverge"})
    driver = harness.sweep(tmp_path, "sweep.n_trials=2")
    assert driver.run() == 0
    assert driver.status.best is None
    assert harness.states(tmp_path / "study") == "FF"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("impossible_for_trial_two", "cannot be run: algorithm.gamma=7"),
        ("an_easier_goal_for_trial_two", "sets task.goal_radius, which cannot be searched"),
    ],
)
def test_draws_that_make_no_config_fail_their_trial_alone(tmp_path: Path, function: str, reason: str) -> None:
    driver = harness.sweep(tmp_path, "sweep.n_trials=4", f"sweep.space=fake_space.{function}")
    assert driver.run() == 0
    assert harness.states(tmp_path / "study") == "CCFC"
    assert reason in harness.study_trials(tmp_path / "study")[2].user_attrs["reason"]


def test_more_trials_may_be_asked_of_a_study(tmp_path: Path) -> None:
    harness.sweep(tmp_path, "sweep.n_trials=2").run()
    before = [t.params for t in harness.study_trials(tmp_path / "study")]
    recorder = harness.Recorded()
    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=4", "launcher.max_retries=5")
    assert harness.driver(config, recorder=recorder).run() == 0
    after = [t.params for t in harness.study_trials(tmp_path / "study")]
    assert after[:2] == before
    assert len(after) == 4
    assert len({tuple(p.values()) for p in after}) == 4  # a restart repeats no draw
    assert (
        "end",
        "trial_0000",
        "finished",
    ) in recorder.calls  # told again, should an earlier recorder not have got so far


def test_a_finished_study_given_again_starts_nothing(tmp_path: Path) -> None:
    harness.sweep(tmp_path, "sweep.n_trials=2").run()
    prepared: list[bool] = []
    screen = harness.Quiet()
    screen.on_show = lambda status: prepared.append(status.preparing)
    driver = harness.sweep(tmp_path, "sweep.n_trials=2", screen=screen)
    assert driver.run() == 0
    assert prepared
    assert not any(prepared)  # not even what jobs would need
    assert [len(f.read_text().splitlines()) for f in tmp_path.rglob("starts")] == [1, 1]
    assert [v.state for v in driver.status.views.values()] == ["finished", "finished"]


def test_another_config_is_refused_with_the_difference(tmp_path: Path) -> None:
    harness.sweep(tmp_path, "sweep.n_trials=2").run()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    with pytest.raises(UserError) as refused:
        harness.sweep(tmp_path, "sweep.n_trials=2", "algorithm.gamma=0.9", "seed=5")
    assert "algorithm.gamma: 0.995 -> 0.9; seed: 1 -> 5" in str(refused.value)
    with pytest.raises(UserError, match=r"n_trials: 2 -> 1 \(it may only grow\)"):
        harness.sweep(tmp_path, "sweep.n_trials=1")
    with pytest.raises(UserError, match="take another experiment_name"):
        harness.driver(harness.configure(tmp_path, "experiment_name=study", "tracking.uri=null"))
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


def test_a_second_driver_is_refused_naming_the_first(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", all={"seconds": 0.2})
    seen: list[str] = []

    def meddle(status: object) -> None:
        if not seen:
            with pytest.raises(UserError) as refused:
                harness.sweep(tmp_path, "sweep.n_trials=1").run()
            seen.append(str(refused.value))

    screen = harness.Quiet()
    screen.on_show = meddle
    assert harness.sweep(tmp_path, "sweep.n_trials=1", screen=screen).run() == 0
    assert f"process {os.getpid()} on {os.uname().nodename}" in seen[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_within_seconds_and_gone_on_with(tmp_path: Path, number: signal.Signals) -> None:
    harness.behave(tmp_path / "study", all={"seconds": 0.4})
    recorder = harness.Recorded()
    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=3")
    screen = harness.Quiet()
    screen.on_show = lambda status: (
        os.kill(os.getpid(), number)
        if not status.stopping and sum(v.state == "running" and v.step >= 2 for v in status.views.values()) == 2
        else None
    )
    began = time.monotonic()
    assert harness.driver(config, screen, recorder).run() == 128 + number
    assert time.monotonic() - began < 10
    assert recorder.calls[-1] == ("close", "interrupted")
    assert ("end", "trial_0000", "interrupted") in recorder.calls
    assert harness.states(tmp_path / "study") == "RR"
    harness.behave(tmp_path / "study", all={"seconds": 0.01})
    assert harness.driver(config).run() == 0
    assert harness.states(tmp_path / "study") == "CCC"
    for trial in range(3):
        log = wal.read(tmp_path / "study" / f"trial_{trial:04d}" / "metrics.jsonl")
        assert [r.step for r in log] == list(range(1, 9))
    first_steps = [int(x.split()[0]) for x in (tmp_path / "study" / "trial_0000" / "starts").read_text().splitlines()]
    assert first_steps[0] == 0
    assert first_steps[1] >= 2


def test_ctrl_c_twice_kills_jobs_that_do_not_listen(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", all={"seconds": 0.1, "do": "deaf"})
    screen = harness.Quiet()

    def twice(status: object) -> None:
        if any(v.state == "running" for v in driver.status.views.values()) and not driver.status.stopping:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    screen.on_show = twice
    driver = harness.sweep(tmp_path, "sweep.n_trials=2", "algorithm.iterations=1000", screen=screen)
    began = time.monotonic()
    assert driver.run() == 130
    assert time.monotonic() - began < 6


def test_ctrl_c_while_jobs_are_being_prepared(tmp_path: Path) -> None:
    screen = harness.Quiet()
    screen.on_show = lambda status: os.kill(os.getpid(), signal.SIGINT) if not status.stopping else None
    driver = harness.sweep(tmp_path, "sweep.n_trials=1", screen=screen)
    assert driver.run() == 130
    assert harness.sweep(tmp_path, "sweep.n_trials=1").run() == 0


def test_a_single_run_and_the_next_one(tmp_path: Path) -> None:
    config = harness.configure(tmp_path, "tracking.uri=null", "algorithm.iterations=4", "evaluation.every=2")
    for number in range(2):
        assert harness.driver(config).run() == 0
        assert (tmp_path / "nav" / f"trial_{number:04d}" / "result.json").exists()


def test_an_interrupted_single_run_goes_on_only_with_the_same_config(tmp_path: Path) -> None:
    overrides = ("tracking.uri=null", "algorithm.iterations=6", "evaluation.every=2")
    config = harness.configure(tmp_path, *overrides)
    harness.behave(tmp_path / "nav", all={"seconds": 0.1})
    screen = harness.Quiet()
    screen.on_show = lambda status: (
        os.kill(os.getpid(), signal.SIGINT)
        if any(v.step >= 1 for v in status.views.values()) and not status.stopping
        else None
    )
    assert harness.driver(config, screen).run() == 130
    assert harness.driver(harness.configure(tmp_path, *overrides, "seed=2")).run() == 0
    assert harness.driver(config).run() == 0
    starts = [(f.parent.name, len(f.read_text().splitlines())) for f in sorted(tmp_path.rglob("starts"))]
    assert starts == [("trial_0000", 2), ("trial_0001", 1)]


def test_points_known_to_be_good_come_right_after_the_baseline(tmp_path: Path) -> None:
    harness.sweep(tmp_path, "sweep.n_trials=3").run()
    best = max(harness.study_trials(tmp_path / "study"), key=lambda t: t.value)
    later = ("sweep.name=later", "sweep.n_trials=3", "sweep.warm_start=study", "sweep.warm_start_top=1")
    harness.sweep(tmp_path, *later, "sweep.enqueue=[{task.rewards.goal.weight: 29.0}]").run()
    weights = [t.params["task.rewards.goal.weight"] for t in harness.study_trials(tmp_path / "later")]
    assert weights == [15.0, 29.0, best.params["task.rewards.goal.weight"]]


def test_ctrl_c_while_the_last_is_recorded(tmp_path: Path) -> None:
    class Slow(harness.Recorded):
        def close(self, outcome: str, timeout: float, **_: object) -> None:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(20)

    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=1")
    began = time.monotonic()
    assert harness.driver(config, recorder=Slow()).run() == 130
    assert time.monotonic() - began < 10
    assert harness.states(tmp_path / "study") == "C"


def test_a_damaged_study_is_said_in_one_line(tmp_path: Path) -> None:
    harness.sweep(tmp_path, "sweep.n_trials=2").run()
    file, database = tmp_path / "study" / "study.yaml", tmp_path / "study" / "study.db"
    whole = file.read_bytes()
    for damaged in (b"", b"\xff\xfe", b"uid: 3", b"[1, 2]", b"a: b: c"):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"study.yaml: damaged"):
            harness.sweep(tmp_path, "sweep.n_trials=2")
    file.write_bytes(whole)
    database.unlink()
    with pytest.raises(UserError, match=r"study.db is gone"):
        harness.sweep(tmp_path, "sweep.n_trials=2")
    assert not database.exists()


def test_of_equal_trials_the_first_is_the_best(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", all={"success": 0.5}, _0={"seconds": 0.05})  # and ends last
    driver = harness.sweep(tmp_path, "sweep.n_trials=2")
    assert driver.run() == 0
    assert driver.status.best == (0, 0.5)
    assert "# Trial 0 " in (tmp_path / "study" / "best" / "config.yaml").read_text()
