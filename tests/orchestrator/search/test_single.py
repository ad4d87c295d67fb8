from pathlib import Path

import harness

from orchestrator.record.mlflow import UNRECORDED
from orchestrator.search.base import write_result
from orchestrator.search.single import SingleRun


def test_earlier_runs_that_the_server_missed_are_recorded_by_the_next(tmp_path: Path) -> None:
    config = harness.configure(tmp_path, "experiment_name=x")
    first = SingleRun(config, tmp_path / "x")
    first.open()
    (trial,) = first.unfinished()
    (spec,) = trial.runs
    (spec.folder / UNRECORDED).touch()
    assert not first.unrecorded()  # it has not ended: it is the run in hand
    write_result(spec.folder, "failed", "why")
    first.close()

    second = SingleRun(config, tmp_path / "x")
    second.open()
    (left,) = second.unrecorded()
    assert (left.trial.number, left.state, left.reason) == (0, "failed", "why")
    assert [run.uid for run in left.trial.runs] == [spec.uid]
    assert [trial.number for trial in second.unfinished()] == [1]
    second.close()


def test_a_run_goes_on_in_as_many_processes_as_it_was_begun_with(tmp_path: Path) -> None:
    def number(*overrides: str) -> int:
        run = SingleRun(harness.configure(tmp_path, "experiment_name=x", "device=cpu", *overrides), tmp_path / "x")
        run.open()
        run.close()
        return run.unfinished()[0].number

    assert number() == 0
    assert number("launcher.max_retries=7") == 0  # where and how it runs is nothing to it
    assert number("launcher.nproc_per_node=2") == 1
    assert number() == 0
