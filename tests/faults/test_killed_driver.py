"""The driver is killed (-9) between two of its steps; the same command finishes the study, each trial counted once."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import optuna
import pytest

from orchestrator import driver as driver_module
from orchestrator.launch.local import LocalLauncher
from orchestrator.record import wal
from orchestrator.search import best, confirm, study, sweep

TRIALS, ITERATIONS = 3, 6


def kill_at(owner: Any, name: str, when: str, call: int) -> Callable[[], None]:
    """Arrange for this process to die right before or after the n-th call (from 1) of a function."""

    def arrange() -> None:
        original = getattr(owner, name)
        calls = 0

        def wrapped(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **named)
            if calls == call and when == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, wrapped)

    return arrange


MOMENTS = {
    "study begun, no storage": kill_at(sweep, "Study", "before", 1),
    "storage half made": kill_at(optuna.storages._rdb.storage._VersionManager, "__init__", "before", 1),
    "storage made, no study in it": kill_at(optuna, "create_study", "before", 1),
    "storage there, nothing asked": kill_at(study.Study, "__init__", "after", 1),
    "a trial has its row, nothing drawn": kill_at(study.Study, "complete", "before", 2),
    "half of it drawn": kill_at(optuna.trial.Trial, "_suggest", "after", 14),
    "all of it drawn, not noted": kill_at(optuna.trial.Trial, "set_user_attr", "before", 2),
    "asked, no folder": kill_at(sweep, "write", "before", 2),
    "folder there, no job": kill_at(LocalLauncher, "start", "before", 2),
    "job started, nobody told": kill_at(LocalLauncher, "start", "after", 2),
    "jobs at work": kill_at(study.Study, "report", "after", 2),
    "result there, nobody told": kill_at(driver_module.Driver, "_conclude", "before", 1),
    "about to tell": kill_at(study.Study, "tell", "before", 2),
    "told, best not written": kill_at(best, "write", "before", 1),
    "told, nothing else": kill_at(study.Study, "tell", "after", 2),
}


WHILE_CONFIRMING = {
    "the last trial told, nothing to confirm begun": kill_at(sweep.Sweep, "_confirm", "before", 1),
    "one of two folders there": kill_at(sweep, "write", "before", TRIALS + 2),
    "folders there, no job": kill_at(LocalLauncher, "start", "before", TRIALS + 1),
    "jobs confirming": kill_at(LocalLauncher, "start", "after", TRIALS + 3),
    "one seed's result there, nobody told": kill_at(driver_module.Driver, "_conclude", "before", TRIALS + 1),
    "one seed concluded, not the other": kill_at(driver_module.Driver, "_conclude", "after", TRIALS + 1),
    "all trained, nothing concluded": kill_at(sweep.Sweep, "conclude", "before", 1),
    "about to write the verdict": kill_at(confirm, "write", "before", 1),
    "verdict there, best not": kill_at(sweep.Sweep, "_write_best", "before", 2),
}


def drive(tmp_path: Path, arrange: Callable[[], None], *more: str) -> int:
    config = harness.configure(
        tmp_path, *harness.SWEEP, f"sweep.n_trials={TRIALS}", f"algorithm.iterations={ITERATIONS}", *more
    )

    def run() -> int:
        arrange()
        return harness.driver(config).run()

    return harness.ended(harness.forked(run))


@pytest.mark.parametrize("moment", MOMENTS)
def test_each_trial_is_counted_once_and_none_is_lost(moment: str, tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", all={"seconds": 0.02})
    assert drive(tmp_path, MOMENTS[moment]) == -signal.SIGKILL
    assert drive(tmp_path, lambda: None) == 0
    folder = tmp_path / "study"
    trials = optuna.load_study(study_name="study", storage=f"sqlite:///{folder / 'study.db'}").get_trials()
    assert [(t.number, t.state.name) for t in trials] == [(n, "COMPLETE") for n in range(TRIALS)]
    assert sorted(f.name for f in folder.glob("*trial_*")) == [f"trial_{n:04d}" for n in range(TRIALS)]
    for trial in trials:
        own = folder / f"trial_{trial.number:04d}"
        told = json.loads((own / "trial.json").read_text())
        assert len(trial.params) == 10
        assert told["params"] == trial.user_attrs["values"] == pytest.approx(trial.params)
        assert told["attempt"] == 0  # the driver's death is not the job's fault
        assert [r.step for r in wal.read(own / "metrics.jsonl")] == list(range(1, ITERATIONS + 1))
        assert json.loads((own / "result.json").read_text())["status"] == "finished"
    assert trials[0].params["task.rewards.goal.weight"] == 15.0
    assert len({tuple(t.params.values()) for t in trials}) == TRIALS
    assert (folder / "best" / "config.yaml").exists()


@pytest.mark.parametrize("moment", WHILE_CONFIRMING)
def test_each_confirmation_is_trained_once_and_none_is_lost(moment: str, tmp_path: Path) -> None:
    folder, confirmed = tmp_path / "study", ("confirm.top_k=1", "confirm.seeds=3")
    harness.behave(folder, all={"seconds": 0.02, "success": 0.5}, _1={"success": 0.9})
    assert drive(tmp_path, WHILE_CONFIRMING[moment], *confirmed) == -signal.SIGKILL
    assert drive(tmp_path, lambda: None, *confirmed) == 0
    verdict = json.loads((folder / "confirm.json").read_text())
    assert verdict["winner"] == 1
    assert "# Trial 1 " in (folder / "best" / "config.yaml").read_text()
    assert len(verdict["seeds"]) == 3
    expected = [folder / "confirm" / f"trial_{n:04d}" / f"seed_{s}" for n in (0, 1) for s in verdict["seeds"]]
    assert sorted(f for f in (folder / "confirm").glob("*/*")) == sorted(expected)
    for own in [*expected, *(folder / f"trial_{n:04d}" for n in range(TRIALS))]:
        assert json.loads((own / "trial.json").read_text())["attempt"] == 0
        assert [r.step for r in wal.read(own / "metrics.jsonl")] == list(range(1, ITERATIONS + 1))
        assert json.loads((own / "result.json").read_text())["status"] == "finished"


def test_a_killed_driver_loses_no_seed_of_a_trial(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", all={"seconds": 0.02}, seed_2={"success": 0.5})
    for moment in (
        kill_at(sweep, "write", "before", 2),
        kill_at(driver_module.Driver, "_conclude", "before", 2),
        kill_at(study.Study, "tell", "before", 1),
    ):
        assert drive(tmp_path, moment, "sweep.seeds_per_trial=2") == -signal.SIGKILL
    assert drive(tmp_path, lambda: None, "sweep.seeds_per_trial=2") == 0
    for trial in harness.study_trials(tmp_path / "study"):
        weight = trial.params["task.rewards.goal.weight"]
        alone = weight / 100 * (2 + 4 + 6) / 6 / 3  # the mean of its three evaluations
        assert trial.value == pytest.approx((alone + 0.5) / 2)
        for seed in (1, 2):
            own = tmp_path / "study" / f"trial_{trial.number:04d}" / f"seed_{seed}"
            assert [r.step for r in wal.read(own / "metrics.jsonl")] == list(range(1, ITERATIONS + 1))
            assert json.loads((own / "trial.json").read_text())["attempt"] == 0


def test_a_proposal_does_not_depend_on_the_kill(tmp_path: Path) -> None:
    """Seed, number and history make it, not the process that asks."""
    drawn = []
    for name, arrange in (("undisturbed", None), ("killed", MOMENTS["a trial has its row, nothing drawn"])):
        if arrange is not None:
            assert drive(tmp_path / name, arrange) == -signal.SIGKILL
        assert drive(tmp_path / name, lambda: None) == 0
        storage = f"sqlite:///{tmp_path / name / 'study' / 'study.db'}"
        drawn.append([t.params for t in optuna.load_study(study_name="study", storage=storage).get_trials()[:2]])
    assert drawn[0] == drawn[1]


def test_killed_again_and_again(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", all={"seconds": 0.02})
    for moment in ("asked, no folder", "job started, nobody told", "about to tell", "jobs at work"):
        drive(tmp_path, MOMENTS[moment])
    assert drive(tmp_path, lambda: None) == 0
    trials = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study' / 'study.db'}").get_trials()
    assert [(t.number, t.state.name) for t in trials] == [(n, "COMPLETE") for n in range(TRIALS)]
