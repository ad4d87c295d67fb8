"""However a trial ends, what its curves show lies in its folder, goes to MLflow, and is counted in the summary."""

import os
from pathlib import Path
from typing import Any

import harness

from orchestrator import terminal
from orchestrator.report.diagnosis import DIAGNOSIS, read
from orchestrator.status import Status


class Recorder(harness.Recorded):
    """Keeps what a trial ended with."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[dict[str, Any]] = []

    def end_trial(self, key: Any, outcome: Any, **given: Any) -> None:
        super().end_trial(key, outcome, **given)
        self.ends.append(given)


def test_finished_pruned_and_failed_trials_all_have_one(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(
        folder,
        all={"success": 0.9, "seconds": 0.05},
        _1={"do": "diverge"},
        _2={"do": "crash"},
        _4={"success": 0.02, "seconds": 0.05},
    )
    pruner = "sweep.pruner={_target_: optuna.pruners.PercentilePruner, percentile: 75.0, n_startup_trials: 1}"
    recorder = Recorder()
    settings = ("sweep.n_trials=5", pruner, "algorithm.iterations=40", "launcher.max_retries=0")
    driver = harness.driver(harness.configure(tmp_path, *harness.SWEEP, *settings), recorder=recorder)
    assert driver.run() == 0
    assert harness.states(folder) == "CFFCP"

    for number in range(5):
        assert (folder / f"trial_{number:04d}" / DIAGNOSIS).read_text().startswith("# What the curves of ")
    verdicts = read(folder / "trial_0001" / DIAGNOSIS)
    assert verdicts["diverged"] == (
        "warning, iteration 40: diverged: loss is nan at iteration 5. Look at the curves just before it: a learning "
        "rate or a reward that is far too large is the usual cause"
    )
    assert "diverged" not in read(folder / "trial_0002" / DIAGNOSIS)  # it was killed

    assert len(recorder.ends) == 5
    for end in recorder.ends:
        assert DIAGNOSIS in {path.name for path in end["artifacts"]}
    (tags,) = [end["tags"] for end in recorder.ends if "diagnosis.diverged" in end["tags"]]
    assert tags["diagnosis.diverged"] == verdicts["diverged"]

    lines = list(terminal.summary(driver.status, folder, None, True))
    assert "curves, to look into: diverged in 1 of 5 trainings (diagnosis.md in each folder)" in lines


def test_a_later_driver_counts_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", _1={"do": "diverge"})
    assert harness.sweep(tmp_path, "sweep.n_trials=2").run() == 0
    written = (tmp_path / "study" / "trial_0001" / DIAGNOSIS).stat().st_mtime_ns
    again = harness.sweep(tmp_path, "sweep.n_trials=2")
    assert again.run() == 0
    assert (tmp_path / "study" / "trial_0001" / DIAGNOSIS).stat().st_mtime_ns == written
    lines = list(terminal.summary(again.status, tmp_path / "study", None, True))
    assert "curves, to look into: diverged in 1 of 2 trainings (diagnosis.md in each folder)" in lines


def test_what_can_not_be_written_down_does_not_end_the_search(tmp_path: Path) -> None:
    """As on a full disk: here something that is no file stands in the way."""
    screen = harness.Quiet()
    driver = harness.sweep(tmp_path, "sweep.n_trials=1", screen=screen)

    def stand_in_the_way(status: Status) -> None:
        for trial in (tmp_path / "study").glob("trial_*"):
            (trial / f".{DIAGNOSIS}.{os.getpid()}").mkdir(exist_ok=True)

    screen.on_show = stand_in_the_way
    assert driver.run() == 0
    assert any("trial_0000: not diagnosed: " in note for note in screen.notes)
    assert harness.states(tmp_path / "study") == "C"
