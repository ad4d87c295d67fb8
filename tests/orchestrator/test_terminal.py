"""What people see."""

import io
import os
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.config import PROJECT
from orchestrator.search.objective import Objective
from orchestrator.status import Status, View
from orchestrator.terminal import PlainScreen, TableScreen, open_screen, summary, tell

RATE = Objective("Eval/success_rate", "maximize", None)
SECONDS = Objective("Eval/time_to_goal", "minimize", 20.0)


@pytest.fixture
def status() -> Status:
    status = Status(total=40, slots=2, objectives=[RATE], preparing=False)
    now = time.monotonic()
    status.views["0"] = View(0, 100, "finished", 100, 0.8, 0.81, None, now - 60, 30.0)
    status.views["1"] = View(1, 100, "pruned", 70, 0.2, 0.19, "too far behind", now - 60, 20.0)
    status.views["2"] = View(2, 100, "failed", 5, None, None, "diverged: loss is nan", now - 60, 2.0)
    status.views["3"] = View(3, 100, "finished", 100, 0.9, 0.91, None, now - 30, 30.0)
    status.views["4"] = View(4, 100, "running", 50, 0.7, None, None, now - 15)
    status.baseline, status.best = 0.81, (3, 0.91)
    return status


def draw(status: Status, height: int = 50, width: int = 120) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, height=height, color_system=None)
    screen = TableScreen(console)
    screen.show(status)
    screen.close()
    return stream.getvalue()


def test_the_table_shows_trials_the_best_the_baseline_and_the_time_left(status: Status) -> None:
    seen = draw(status)
    for text in ("running", "0.700", "baseline", "best", "diverged: loss is nan", "too far behind"):
        assert text in seen
    assert "4 of 40 trials" in seen
    assert "best Eval/success_rate 0.910 in trial 3 (baseline 0.810)" in seen
    assert "left" in seen


def test_a_long_table_fits_the_screen_and_keeps_what_matters(status: Status) -> None:
    for number in range(5, 100):
        status.views[str(number)] = View(number, 100, "finished", 100, 0.5, 0.5, None, time.monotonic() - 30, 30.0)
    status.views["50"].state = "running"
    lines = draw(status, height=20).splitlines()
    shown = {int(line.split()[0]) for line in lines if line.split()[:1] and line.split()[0].isdigit()}
    assert {0, 3, 50, 99} <= shown
    assert len(shown) <= 12
    assert any("more that have ended" in line for line in lines)


def test_time_left_is_what_is_left_by_what_it_took(status: Status) -> None:
    # 30 s a trial, two at a time: half of trial 4, and 35 more
    assert status.time_left() == pytest.approx((0.5 + 35) * 30 / 2, rel=0.05)
    assert Status(total=3, slots=2, objectives=[RATE]).time_left() is None


def test_the_table_is_drawn_at_most_once_a_second_but_for_changes(status: Status) -> None:
    stream = io.StringIO()
    screen = TableScreen(Console(file=stream, force_terminal=True, width=120, color_system=None))
    screen.show(status)
    drawn = len(stream.getvalue())
    screen.show(status)
    assert len(stream.getvalue()) == drawn
    status.views["4"].state = "finished"
    screen.show(status)
    assert len(stream.getvalue()) > drawn
    screen.close()


def test_plain_lines_where_there_is_no_terminal(status: Status) -> None:
    stream = io.StringIO()
    screen = open_screen(stream)
    assert isinstance(screen, PlainScreen)
    screen.show(status)
    screen.show(status)
    screen.note("something")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 6  # one for each trial's state, and the note
    assert "\x1b" not in stream.getvalue()
    assert lines[1] == "trial 1 pruned: too far behind"
    # Once is enough to say what a result is.
    assert lines[0].startswith(
        "trial 0 (baseline) finished: Eval/success_rate 0.810 (mean of the last 3 evaluations); "
    )
    assert lines[3].startswith("trial 3 finished: Eval/success_rate 0.910, the best so far; 4 of 40 trials")


def test_confirmations_follow_the_trials_and_are_counted_apart(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    status.total, status.confirmations, status.fresh_seeds = 5, 2, 3
    status.views["4"].state = "failed"
    status.views["confirm/3"] = View(3, 300, "running", 150, 0.9, runs=3, confirms=True, began=time.monotonic() - 22.5)
    seen = draw(status)
    numbers = [line.split()[0] for line in seen.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert numbers[:6] == ["0", "1", "2", "3", "4", "3"]
    assert "confirmation, 3 fresh seeds" in seen
    assert "5 of 5 trials · 0 of 2 confirmations" in seen
    # 30 s a training, two at a time: half of three, and three more
    assert status.trainings_left() == pytest.approx(1.5 + 3)
    assert status.time_left() == pytest.approx(4.5 * 30 / 2, rel=0.05)
    stream = io.StringIO()
    monkeypatch.setattr("orchestrator.terminal.REPORT", 0.0)
    open_screen(stream).show(status)
    assert "confirmation of trial 3 running" in stream.getvalue()
    assert "confirmation of trial 3 at 150/300 iterations of 3 seeds, success 0.900; " in stream.getvalue()


def test_the_summary_says_how_to_run_the_best_again(status: Status) -> None:
    status.findings, status.again = ["better than the baseline: trial 3"], ("the winner", "+best=config")
    lines = "\n".join(summary(status, Path("/data/sweeps/study"), "sqlite:////data/mlruns/mlflow.db", True))
    assert "baseline (trial 0)  Eval/success_rate 0.8100" in lines
    assert "best (trial 3)  Eval/success_rate 0.9100  (+0.1000)" in lines
    assert "better than the baseline: trial 3" in lines
    assert "train the winner again: " in lines
    assert "python -m orchestrator --config-dir /data/sweeps/study +best=config" in lines
    assert "tensorboard --logdir /data/sweeps/study" in lines
    assert "mlflow ui --backend-store-uri sqlite:////data/mlruns/mlflow.db" in lines


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("objectives", [[RATE], [RATE, SECONDS]])
def test_the_table_fits_the_terminal(status: Status, width: int, objectives: list[Objective]) -> None:
    status.objectives = objectives
    if len(objectives) > 1:
        status.best = None
        for view in status.views.values():
            view.values = (0.5, 6.125) if view.state == "finished" else ()
        status.views["3"].reason, status.views["3"].broken = f"breaks {'x' * 200}", ["x"]
    seen = draw(status, width=width)
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[?\dA-Za-z;]*[A-Za-z]", "", seen).splitlines()]
    assert max(map(len, lines)) <= width
    (row,) = {line for line in lines if line.startswith("    3  ")}  # on one line, as all trials
    assert row.split()[1] == "finished"
    assert {"0.910"} <= set(row.split()) if len(objectives) == 1 else {"0.500", "6.125"} <= set(row.split())
    assert ("━" in row) == (width == 120 or (len(objectives) == 1 and width == 80))
    assert ("100 %" in row) != ("━" in row)
    text = " ".join(lines)
    assert "4 of 40 trials" in text
    assert "result: Eval/success_rate, more is better" in text or "time_to_goal: less is better" in text
    assert ("1 breaks a constraint" in text) == (len(objectives) > 1)


def test_a_single_training_is_the_best_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = Status(total=1, slots=1, objectives=[RATE], preparing=False)
    status.views["trial_0003"] = View(3, 10, "finished", 10, 0.8, 0.81)
    status.best = (3, 0.81)
    stream = io.StringIO()
    open_screen(stream).show(status)
    assert stream.getvalue().startswith("trial 3 finished: Eval/success_rate 0.810 (mean of the last 3 evaluations); ")
    assert "best" not in stream.getvalue()
    assert (
        next(iter(summary(status, Path("/data/sweeps/nav"), None, False)))
        == "trial 3 finished: Eval/success_rate 0.8100"
    )
    status.views["trial_0003"].state, status.views["trial_0003"].reason = "failed", "diverged"
    nav = PROJECT / "sweeps" / "nav"
    store = f"sqlite:///{PROJECT}/mlruns/mlflow.db"
    monkeypatch.chdir(PROJECT)
    # Where lines stay, as there are no others to be seen, the reason has been told.
    assert list(summary(status, nav, store, False, told=True)) == [
        "files: sweeps/nav/trial_0003",
        "curves: make tensorboard, or make ui",
    ]
    assert next(iter(summary(status, nav, store, False))).startswith(
        "trial 3 failed: Eval/success_rate 0.8100: diverged"
    )
    monkeypatch.chdir(tmp_path)
    assert f"tensorboard --logdir {nav}, or " in "\n".join(summary(status, nav, store, False))


def test_every_value_has_the_name_of_its_objective(status: Status) -> None:
    status.objectives = [RATE, SECONDS]
    status.views["3"].values = (0.91, 6.5)
    stream = io.StringIO()
    open_screen(stream).show(status)
    assert "trial 3 finished: Eval/success_rate 0.910, Eval/time_to_goal 6.500" in stream.getvalue()


def test_a_baseline_that_breaks_a_constraint_is_told(status: Status) -> None:
    status.views = {f"trial_{int(name):04d}": view for name, view in status.views.items()}
    status.views["trial_0000"].broken = ["Eval/collision_rate <= 0.1 (0.300, by 0.200)"]
    lines = list(summary(status, Path("/data/sweeps/study"), None, True))
    assert lines[1] == "4 of 40 trials: 2 finished, 1 pruned, 1 failed, 1 of them breaks a constraint"
    told = "breaks Eval/collision_rate <= 0.1 (0.300, by 0.200)"
    assert lines[2] == f"  baseline (trial 0)  Eval/success_rate 0.8100, {told}"


@pytest.mark.parametrize("gone", ["the reader of a pipe", "the stream", "standard output", "the space"])
def test_a_screen_that_is_gone_ends_nothing(status: Status, gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    stream = open("/dev/full" if gone == "the space" else write, "w")  # noqa: SIM115
    os.close(read)
    if gone == "the stream":
        stream.close()
    monkeypatch.setattr("sys.stdout", None if gone == "standard output" else stream)
    screen = open_screen()
    for _ in range(2):
        screen.show(status)
        screen.note("a word")
    screen.close()
    tell("the end", "of it")
    stream.close()  # nor does what was still in its buffer
