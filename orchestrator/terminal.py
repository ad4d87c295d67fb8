"""What people see while a search runs: a live table in a terminal, plain lines anywhere else."""

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.config import PROJECT
from orchestrator.report.diagnosis import summarise
from orchestrator.search.base import trial_folder
from orchestrator.search.objective import SUCCESS
from orchestrator.status import Screen, Status, View

REFRESH, REPORT = 1.0, 30.0
"""Seconds between two drawings of the table, and between two plain lines on how far trials are."""

_STYLE = {"running": "cyan", "finished": "green", "pruned": "yellow", "failed": "red", "interrupted": "yellow"}
LOGS, STORE = PROJECT / "sweeps", f"sqlite:///{PROJECT / 'mlruns' / 'mlflow.db'}"
"""What ``make tensorboard`` and ``make ui`` show."""

_CHROME = 9  # lines of the screen that are not trials: frame, head, the lines below, room for notes


def open_screen(stream: TextIO | None = None) -> Screen:
    """The screen for this output, standard output if none is given."""
    outliving = cast(TextIO, Outliving(stream or sys.stdout))
    console = Console(file=outliving, highlight=False)
    return TableScreen(console) if console.is_terminal else PlainScreen(outliving)


def tell(*lines: str) -> None:
    """Print lines, where there is anybody to read them."""
    stream = Outliving(sys.stdout)
    stream.write("".join(f"{line}\n" for line in lines))
    stream.flush()


class Outliving(io.TextIOBase):
    """A text stream that takes what is written also when it is closed, or whoever read it has gone: that is no reason
    to end a training."""

    def __init__(self, stream: TextIO | None) -> None:
        """``stream`` is None where a process was started without."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or not."""
        self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Likewise."""
        self._try(lambda stream: stream.flush())

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Raises OSError where it has none."""
        return super().fileno() if self._stream is None else self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def _try(self, what: Callable[[TextIO], object]) -> None:
        if self._stream is None:
            return
        try:
            what(self._stream)
        except (OSError, ValueError):  # the latter of a stream that was closed
            with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())  # what it has in its buffer goes there at the end
            self._stream = None


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
        shown, left_out = _choose(status, max(4, self._console.height - _CHROME))
        columns = _fitting(_columns(status), self._console.width)
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        taken = sum(column.width + GAP for column in columns if column.head)
        for column in columns:
            width = column.width if column.head else max(1, self._console.width - taken)
            table.add_column(column.head, justify=column.justify, no_wrap=True, overflow="ellipsis", max_width=width)
        for view in shown:
            table.add_row(*(column.cell(view) for column in columns))
        lines: list[RenderableType] = [table]
        if left_out:
            lines.append(Text(f"and {left_out} more that have ended", style="dim"))
        if self._console.height > 2 * _CHROME:
            lines += [Text(line, style="dim") for line in _filled(_legend(status, columns), "; ", self._console.width)]
        elapsed = time.monotonic() - self._began
        headline = _headline(status, elapsed)
        if len(headline) > self._console.width:
            headline = _headline(status, elapsed, by_name=True)
        lines += [Text(line, style="bold") for line in _filled(headline, " · ", self._console.width)]
        return Group(*lines)


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    head: str
    cell: Callable[[View], RenderableType]
    width: int
    """That it needs; remarks, the column without a head, take what is left."""
    rank: int
    """0 is shown whatever the terminal; of the others the highest goes first where there is no room."""
    justify: Literal["left", "right"] = "right"


GAP = 2


def _columns(status: Status) -> list[Column]:
    bar, several = 24, len(status.objectives) > 1
    columns = [
        Column("trial", lambda view: str(view.number), 5, 0),
        Column("state", lambda view: Text(view.state, style=_STYLE.get(view.state, "")), 11, 0, "left"),
        Column("progress", lambda view: _bar(view, bar), bar, 5, "left"),
        Column("done", lambda view: f"{100 * _done(view) / view.total:.0f} %", 5, 1),
        Column("success", lambda view: _number(view.success), 7, 4 if several else 2),
    ]
    for index, objective in enumerate(status.objectives):
        head = _short_name(objective.metric) if several else "result"

        def value(view: View, index: int = index) -> RenderableType:
            shown = view.values[index] if view.values else None if several else view.value
            return Text(_number(shown), style="bold green" if _is_best(status, view) else "")

        columns.append(Column(head, value, max(6, len(head)), 0 if index == 0 else 2))
    columns.append(Column("", lambda view: Text(_remark(status, view), style="dim"), 10, 3, "left"))
    return columns


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Those that a terminal of this width has room for."""
    kept = list(columns)
    if sum(c.width + GAP for c in kept if c.head != "done") <= width:  # a bar says it as well
        return [c for c in kept if c.head != "done"]
    while sum(c.width + GAP for c in kept) - GAP > width and any(c.rank for c in kept):
        kept.remove(max(reversed(kept), key=lambda c: c.rank))
    return kept


def _filled(text: str, separator: str, width: int) -> list[str]:
    """Lines as full as they get of parts that are not broken up."""
    lines: list[str] = []
    for part in text.split(separator):
        if lines and len(lines[-1]) + len(separator) + len(part) <= width:
            lines[-1] += separator + part
        else:
            lines.append(part)
    return lines


def _legend(status: Status, columns: Sequence[Column]) -> str:
    """What the columns of numbers are."""
    has_success = any(column.head == "success" for column in columns)
    told = [f"success: newest {SUCCESS} on the frozen rooms"] if has_success else []
    for objective in status.objectives:
        head = "result" if len(status.objectives) == 1 else _short_name(objective.metric)
        better = "more" if objective.direction == "maximize" else "less"
        what = f"{objective.metric}, " if head != objective.metric.partition("/")[2] else ""
        told.append(f"{head}: {what}{better} is better")
    return "; ".join([*told, f"results are means over the last {status.window} evaluations"])


def _short_name(metric: str) -> str:
    return metric.rpartition("/")[2]


def _done(view: View) -> int:
    return view.total if view.state == "finished" else view.step


def _bar(view: View, width: int) -> ProgressBar:
    style = _STYLE.get(view.state, "") or "cyan"
    return ProgressBar(total=view.total, completed=_done(view), width=width, complete_style=style)


def _remark(status: Status, view: View) -> str:
    remark = ["baseline"] if view.number == 0 and status.total > 1 else []
    remark += ["best"] if _is_best(status, view) and status.total > 1 else []
    remark += [f"confirmation, {view.runs} fresh seeds"] if view.confirms else []
    remark += [f"{view.runs} seeds"] if view.runs > 1 and not view.confirms else []
    remark += [view.reason] if view.reason else []
    return ", ".join(remark)


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
            parts = [f"{_name(v)} at {v.step}/{v.total}{_of_seeds(v)}{_success(v)}" for v in live]
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
            best = _is_best(status, view) and view.number > 0 and status.total > 1
            remark = f", {view.reason}" if view.reason else ", the best so far" if best else ""
            result = _result(status, view) + self._mean(status)
            return f"{name} finished: {result}{remark}; {_headline(status, time.monotonic() - self._began)}"
        return f"{name} {view.state}" + (f": {view.reason}" if view.reason else "")

    def _mean(self, status: Status) -> str:
        """What a result is, once: the newest value, which was told until now, may be far from it."""
        if status.window == 1 or "window" in self._told_of:
            return ""
        self._told_of.add("window")
        return f" (mean{'s'[: len(status.objectives) > 1]} of the last {status.window} evaluations)"


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


def _result(status: Status, view: View) -> str:
    values = view.values or (view.value,)
    return ", ".join(f"{o.metric} {_number(value)}" for o, value in zip(status.objectives, values, strict=False))


def _headline(status: Status, elapsed: float, by_name: bool = False) -> str:
    """How far it is; ``by_name`` alone, without what kind of metric it is, where there is little room."""
    parts = []
    if status.total > 1:
        parts.append(f"{len(status.ended())} of {status.total} trials")
    confirmed = len(status.ended(confirms=True))
    if status.confirmations and len(status.ended()) >= status.total:
        parts.append(f"{confirmed} of {status.confirmations} confirmations")
    if status.best is not None and status.total > 1:
        against = f" (baseline {status.baseline:z.3f})" if status.baseline is not None else ""
        sought = _short_name(status.sought) if by_name else status.sought
        parts.append(f"best {sought} {status.best[1]:z.3f} in trial {status.best[0]}{against}")
    broken = sum(bool(view.broken) for view in status.ended())
    if broken:
        parts.append(f"{broken} break{'s'[: broken == 1]} a constraint")
    parts.append(f"{_duration(elapsed)} gone")
    left = status.time_left()
    if status.preparing:
        parts.append("importing what jobs need")
    elif status.stopping:
        parts.append("stopping")
    elif left is not None and (len(status.ended()) < status.total or confirmed < status.confirmations):
        parts.append(f"about {_duration(left)} left")
    return " · ".join(parts)


def _of_seeds(view: View) -> str:
    return f" iterations of {view.runs} seeds" if view.runs > 1 else ""


def _success(view: View) -> str:
    return "" if view.success is None else f", success {_number(view.success)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:z.3f}"


def _duration(seconds: float) -> str:
    seconds = round(seconds)
    return f"{seconds} s" if seconds < 100 else f"{seconds // 60}:{seconds % 60:02d} min"


def summary(status: Status, folder: Path, tracking: str | None, is_sweep: bool, told: bool = False) -> Iterable[str]:
    """The lines at the end. ``told``: why a training ended early stands above already, uncut."""
    ended = status.ended()
    if is_sweep:
        counts = [(s, sum(v.state == s for v in ended)) for s in ("finished", "pruned", "failed")]
        yield ""
        states = ", ".join(f"{n} {s}" for s, n in counts if n) or "none ended"
        broken = sum(bool(view.broken) for view in ended)
        states += f", {broken} of them break{'s'[: broken == 1]} a constraint" if broken else ""
        yield f"{len(ended)} of {status.total} trials: {states}"
        yield from _best(status)
        yield from status.findings
        if status.again is not None:
            whose, override = status.again
            python = short(Path(sys.executable))
            yield f"train {whose} again: {python} -m orchestrator --config-dir {short(folder)} {override}"
    else:
        for view in status.views.values():
            if told and view.reason:
                continue
            result = f": {status.sought} {view.value:z.4f}" if view.value is not None else ""
            yield f"trial {view.number} {view.state}{result}" + (f": {view.reason}" if view.reason else "")
    yield from summarise(list(status.verdicts.values()))
    if is_sweep and (folder / "report.html").exists():
        yield f"report: {short(folder / 'report.html')}"
    only = next(iter(status.views), "") if len(status.views) == 1 and not is_sweep else ""
    yield f"files: {short(folder / only)}"
    at_home = Path.cwd() == PROJECT
    logs = f"{_beside_python('tensorboard')} --logdir {short(folder)}"
    curves = ["make tensorboard" if at_home and folder.parent == LOGS else logs]
    if tracking is not None and tracking.startswith("http"):
        curves.append(tracking)
    elif tracking is not None:
        browse = f"{_beside_python('mlflow')} ui --backend-store-uri {tracking}"
        curves.append("make ui" if at_home and tracking == STORE else browse)
    yield f"curves: {', or '.join(curves)}"


def _best(status: Status) -> Iterable[str]:
    """How the best of the search stands to the baseline."""
    baseline = status.views.get(str(trial_folder(Path(), 0)))
    if status.baseline is not None:
        breaks = f", breaks {', '.join(baseline.broken)}" if baseline is not None and baseline.broken else ""
        unbeaten = ", and no other trial came out better" if status.best is not None and status.best[0] == 0 else ""
        yield f"  baseline (trial 0)  {status.sought} {status.baseline:z.4f}{breaks}{unbeaten}"
    if status.best is not None and status.best[0] > 0:
        number, value = status.best
        against = f"  ({value - status.baseline:+z.4f})" if status.baseline is not None else ""
        yield f"  best (trial {number})  {status.sought} {value:z.4f}{against}"


def _beside_python(command: str) -> str:
    """How to start a command of this environment, which need not be activated."""
    path = Path(sys.executable).with_name(command)
    return short(path) if path.exists() else command


def short(path: Path) -> str:
    """A path relative to the working directory where that is shorter to type."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
