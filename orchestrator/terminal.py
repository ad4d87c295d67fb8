"""What people see while a search runs: a live table in a terminal, plain lines anywhere else."""

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.report.diagnosis import summarise
from orchestrator.status import Screen, Status, View

REFRESH, REPORT = 1.0, 30.0
"""Seconds between two drawings of the table, and between two plain lines on how far trials are."""

_STYLE = {"running": "cyan", "finished": "green", "pruned": "yellow", "failed": "red", "interrupted": "yellow"}
_CHROME = 9  # lines of the screen that are not trials: frame, head, the lines below, room for notes


def open_screen(stream: TextIO = sys.stdout) -> Screen:
    """The screen for this output."""
    console = Console(file=stream, highlight=False)
    return TableScreen(console) if console.is_terminal else PlainScreen(stream)


class TableScreen:
    """A table that is redrawn in place, once a second, and at once when a trial's state changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._drawn, self._states = 0.0, ""
        self._began = time.monotonic()
        self._status: Status | None = None

    def show(self, status: Status) -> None:
        """See Screen."""
        states = f"{[(name, v.state) for name, v in status.views.items()]}{status.preparing}{status.stopping}"
        now = time.monotonic()
        if states == self._states and now - self._drawn < REFRESH:
            return
        if not self._live.is_started:
            self._live.start()
        self._states, self._drawn, self._status = states, now, status
        self._live.update(self._render(status), refresh=True)

    def note(self, line: str) -> None:
        """See Screen."""
        self._console.print(Text(line, style="yellow"))

    def close(self) -> None:
        """See Screen."""
        if self._live.is_started:
            if self._status is not None:
                self._live.update(self._render(self._status), refresh=True)
            self._live.stop()

    def _render(self, status: Status) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("trial", justify="right")
        table.add_column("state")
        table.add_column("progress")
        table.add_column("success", justify="right")
        table.add_column("result", justify="right")
        table.add_column("", overflow="ellipsis", no_wrap=True)
        shown, left_out = _choose(status, max(4, self._console.height - _CHROME))
        for view in shown:
            self._row(table, status, view)
        lines: list[RenderableType] = [table]
        if left_out:
            lines.append(Text(f"and {left_out} more that have ended", style="dim"))
        lines.append(Text(_headline(status, time.monotonic() - self._began), style="bold"))
        return Group(*lines)

    @staticmethod
    def _row(table: Table, status: Status, view: View) -> None:
        style = _STYLE.get(view.state, "")
        done = view.total if view.state == "finished" else view.step
        bar = ProgressBar(total=view.total, completed=done, width=24, complete_style=style or "cyan")
        best = _is_best(status, view)
        remark = ["baseline"] if view.number == 0 and status.total > 1 else []
        remark += ["best"] if best and status.total > 1 else []
        remark += [f"confirmation, {view.runs} fresh seeds"] if view.confirms else []
        remark += [f"{view.runs} seeds"] if view.runs > 1 and not view.confirms else []
        remark += [view.reason] if view.reason else []
        table.add_row(
            str(view.number),
            Text(view.state, style=style),
            bar,
            _number(view.success),
            Text(_result(view), style="bold green" if best else ""),
            Text(", ".join(remark), style="dim"),
        )


class PlainScreen:
    """One line for each thing that happens, and now and then how far it is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._states: dict[str, str] = {}
        self._reported = self._began = time.monotonic()
        self._told_of: set[str] = set()

    def show(self, status: Status) -> None:
        """See Screen."""
        for what, line in (("preparing", "starting: importing what jobs need"), ("stopping", "stopping all trials")):
            if getattr(status, what) and what not in self._told_of:
                self._told_of.add(what)
                self.note(line)
        for name, view in sorted(status.views.items(), key=lambda item: _order(item[1])):
            if self._states.get(name) != view.state:
                self._states[name] = view.state
                if view.state != "starting":
                    self.note(self._event(status, view))
        if time.monotonic() - self._reported >= REPORT:
            self._reported = time.monotonic()
            live = [v for v in status.views.values() if v.state == "running"]
            parts = [f"{_name(v)} at {v.step}/{v.total}, success {_number(v.success)}" for v in live]
            self.note("; ".join([*parts, _headline(status, time.monotonic() - self._began)]))

    def note(self, line: str) -> None:
        """See Screen."""
        with self._lock:
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def close(self) -> None:
        """See Screen."""

    def _event(self, status: Status, view: View) -> str:
        name = _name(view) + (" (baseline)" if view.number == 0 and status.total > 1 else "")
        if view.state == "finished":
            best = _is_best(status, view) and view.number > 0
            remark = f", {view.reason}" if view.reason else ", the best so far" if best else ""
            return (
                f"{name} finished: {status.objective} {_result(view)}{remark}; "
                f"{_headline(status, time.monotonic() - self._began)}"
            )
        return f"{name} {view.state}" + (f": {view.reason}" if view.reason else "")


def _choose(status: Status, room: int) -> tuple[list[View], int]:
    """The trials to show where not all fit: live ones, the baseline, the best, and the latest that ended."""
    views = sorted(status.views.values(), key=_order)
    if len(views) <= room:
        return views, 0
    ended = ("finished", "pruned", "failed")
    kept = [v for v in views if v.state not in ended or (not v.confirms and v.number == 0) or _is_best(status, v)]
    for view in reversed(views):
        if len(kept) >= room:
            break
        if all(view is not other for other in kept):
            kept.append(view)
    return sorted(kept, key=_order), len(views) - len(kept)


def _order(view: View) -> tuple[bool, int]:
    return view.confirms, view.number


def _is_best(status: Status, view: View) -> bool:
    return status.best is not None and status.best[0] == view.number and not view.confirms


def _name(view: View) -> str:
    return f"confirmation of trial {view.number}" if view.confirms else f"trial {view.number}"


def _result(view: View) -> str:
    return _number(view.value) if not view.values else " ".join(_number(value) for value in view.values)


def _headline(status: Status, elapsed: float) -> str:
    parts = []
    if status.total > 1:
        parts.append(f"{len(status.ended())} of {status.total} trials")
    confirmed = len(status.ended(confirms=True))
    if status.confirmations and len(status.ended()) >= status.total:
        parts.append(f"{confirmed} of {status.confirmations} confirmations")
    if status.best is not None and status.total > 1:
        against = f" (baseline {status.baseline:.3f})" if status.baseline is not None else ""
        parts.append(f"best {status.objective} {status.best[1]:.3f} in trial {status.best[0]}{against}")
    parts.append(f"{_duration(elapsed)} gone")
    left = status.time_left()
    if status.preparing:
        parts.append("importing what jobs need")
    elif status.stopping:
        parts.append("stopping")
    elif left is not None and (len(status.ended()) < status.total or confirmed < status.confirmations):
        parts.append(f"about {_duration(left)} left")
    return " · ".join(parts)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _duration(seconds: float) -> str:
    seconds = round(seconds)
    return f"{seconds} s" if seconds < 100 else f"{seconds // 60}:{seconds % 60:02d} min"


def summary(status: Status, folder: Path, tracking: str | None, is_sweep: bool) -> Iterable[str]:
    """The lines at the end."""
    ended = status.ended()
    if is_sweep:
        counts = [(s, sum(v.state == s for v in ended)) for s in ("finished", "pruned", "failed")]
        yield ""
        yield f"{len(ended)} of {status.total} trials: {', '.join(f'{n} {s}' for s, n in counts if n) or 'none ended'}"
        if status.best is not None:
            number, value = status.best
            if status.baseline is not None:
                yield f"  baseline (trial 0)  {status.objective} {status.baseline:.4f}"
                sign = value - status.baseline
                yield f"  best (trial {number})  {status.objective} {value:.4f}  ({sign:+.4f})"
            else:
                yield f"  best (trial {number})  {status.objective} {value:.4f}"
        yield from status.findings
        if status.again is not None:
            whose, override = status.again
            python = _short(Path(sys.executable))
            yield f"train {whose} again: {python} -m orchestrator --config-dir {_short(folder)} {override}"
    else:
        for view in status.views.values():
            result = f": {status.objective} {view.value:.4f}" if view.value is not None else ""
            yield f"run {view.number} {view.state}{result}" + (f": {view.reason}" if view.reason else "")
    yield from summarise(list(status.verdicts.values()))
    if is_sweep and (folder / "report.html").exists():
        yield f"report: {_short(folder / 'report.html')}"
    yield f"files: {_short(folder)}"
    yield (
        f"curves: {_beside_python('tensorboard')} --logdir {_short(folder)}"
        + (
            f", or {_beside_python('mlflow')} ui --backend-store-uri {tracking}"
            if tracking and not tracking.startswith("http")
            else ""
        )
        + (f", or {tracking}" if tracking and tracking.startswith("http") else "")
    )


def _beside_python(command: str) -> str:
    """How to start a command of this environment, which need not be activated."""
    path = Path(sys.executable).with_name(command)
    return _short(path) if path.exists() else command


def _short(path: Path) -> str:
    """Relative to the working directory where that is shorter to type."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
