"""What people see."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.status import Status, View
from orchestrator.terminal import PlainScreen, TableScreen, open_screen, summary


@pytest.fixture
def status() -> Status:
    status = Status(total=40, slots=2, objective="Eval/success_rate", direction="maximize", preparing=False)
    now = time.monotonic()
    status.views["0"] = View(0, 100, "finished", 100, 0.8, 0.81, None, now - 60, 30.0)
    status.views["1"] = View(1, 100, "pruned", 70, 0.2, 0.19, "too far behind", now - 60, 20.0)
    status.views["2"] = View(2, 100, "failed", 5, None, None, "diverged: loss is nan", now - 60, 2.0)
    status.views["3"] = View(3, 100, "finished", 100, 0.9, 0.91, None, now - 30, 30.0)
    status.views["4"] = View(4, 100, "running", 50, 0.7, None, None, now - 15)
    status.baseline, status.best = 0.81, (3, 0.91)
    return status


def draw(status: Status, height: int = 50) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, height=height, color_system=None)
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
    assert Status(total=3, slots=2, objective="o", direction="maximize").time_left() is None


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
    assert lines[3].startswith("trial 3 finished: Eval/success_rate 0.910, the best so far; 4 of 40 trials")


def test_confirmations_follow_the_trials_and_are_counted_apart(status: Status) -> None:
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
    open_screen(stream).show(status)
    assert "confirmation of trial 3 running" in stream.getvalue()


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
