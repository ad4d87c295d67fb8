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
from orchestrator.search import best, study, sweep

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


def drive(tmp_path: Path, arrange: Callable[[], None]) -> int:
    config = harness.configure(
        tmp_path, *harness.SWEEP, f"sweep.n_trials={TRIALS}", f"algorithm.iterations={ITERATIONS}"
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
