"""The metrics log `metrics.jsonl`: what a job appends to, and what driver and recorder follow.

One line is one iteration, strict JSON: `{"step": 12, "time": 1790000000.1, "metrics": {"Train/env_steps": 98304, …}}`.
JSON has no NaN and no infinity, so these are the strings "nan", "inf" and "-inf".

What the file promises:

* steps are whole numbers, strictly increasing, one line a step;
* a line is whole, or it is the last one and has no newline (its writer died meanwhile; the next writer cuts it off);
* the file only grows, or is replaced as a whole by `truncate` (write aside, then rename), never edited in place.

A line is handed to the kernel at once but not forced to the disk: it outlives the process, not a power cut.
"""

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.files import Damaged

_STEPS, _TIMES = range(2**63), (0.0, 1e12)
"""What a step and a time may be: MLflow's database has 64 bits for a step, and for milliseconds."""

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True, slots=True)
class Record:
    """One iteration of a training."""

    step: int
    """Iteration, counted by the job."""
    time: float
    """When it was written, seconds since 1970, whole milliseconds (MLflow's resolution)."""
    metrics: dict[str, float]
    """Name -> value; values may be non-finite."""


class MetricsLog:
    """Appends records to `path`.

    A torn last line that a killed writer left is cut off first. A write that fails half-way (disk full) is taken back,
    so that what was whole stays whole; the error goes to the caller.
    """

    def __init__(self, path: Path) -> None:
        """Open `path`, creating it where there is none."""
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        whole, last = _whole_part(path.read_bytes())
        if whole < os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, whole)
        self._size = whole
        self.last_step = last
        """Newest step in the file; None while it is empty."""

    def append(self, record: Record) -> None:
        """Write one line. Raises ValueError when the step doesn't increase, OSError when the disk refuses."""
        if self.last_step is not None and record.step <= self.last_step:
            raise ValueError(f"step {record.step} after step {self.last_step}: steps of {self.path} must increase")
        line = encode(record)
        written = 0
        try:
            while written < len(line):  # one write but for a full disk or a signal
                written += os.write(self._fd, line[written:])
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)
        self.last_step = record.step

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Tail:
    """Follows a metrics log that another process writes; each step comes out once, in order.

    Copes with a file that doesn't exist yet, with a torn last line (left for the next look) and with a file that was
    replaced by `truncate`: steps that came out before are not repeated when the job writes them again. When nothing is
    new a look costs two system calls.
    """

    def __init__(self, path: Path, after: int | None = None) -> None:
        """Follow `path`, leaving out the steps up to and including `after`."""
        self.path = path
        self.last_step = after
        """Newest step that came out."""
        self.skipped_lines = 0
        """Whole lines that were no record; they are left out."""
        self._fd = -1
        self._offset = 0

    def read(self) -> list[Record]:
        """Return what is new since the last call. Raises Damaged where a folder is there."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return []
        # The old file is kept open, so its inode number can't be given to the file that replaces it.
        if self._fd < 0 or not os.path.samestat(now, os.fstat(self._fd)) or now.st_size < self._offset:
            self.close()
            try:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
            self._offset = 0
            now = os.fstat(self._fd)
            if stat.S_ISDIR(now.st_mode):
                raise Damaged(self.path, "expected a log of metrics, found a folder")
        if now.st_size == self._offset:
            return []
        data = _read_from(self._fd, self._offset)
        end = data.rfind(b"\n") + 1
        self._offset += end
        return list(self._new_records(data[:end]))

    def close(self) -> None:
        """Let go of the file; a later `read` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _new_records(self, data: bytes) -> Iterator[Record]:
        for line in data.splitlines():
            record = decode(line)
            if record is None:
                self.skipped_lines += 1
            elif self.last_step is None or record.step > self.last_step:
                self.last_step = record.step
                yield record


def read(path: Path) -> list[Record]:
    """Return every whole record of a log; empty when there is no file. Raises Damaged where a folder is there."""
    tail = Tail(path)
    try:
        return tail.read()
    finally:
        tail.close()


def truncate(path: Path, step: int | None) -> int | None:
    """Keep the records up to and including `step` (None: keep nothing) and return the last step kept.

    The shorter file is written aside and renamed, so a reader sees the old file or the new one, whole. Nothing may be
    writing to `path`. A file that is missing, or has nothing to drop, is left as it is.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    kept: list[bytes] = []
    last: int | None = None
    for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
        record = decode(line)
        if record is None or step is None or record.step > step:
            break
        kept.append(line)
        last = record.step
    whole = b"".join(kept)
    if len(whole) < len(data):
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(aside, "wb") as file:
                file.write(whole)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    return last


def encode(record: Record) -> bytes:
    """Return the record's line, newline included."""
    metrics = {name: value if math.isfinite(value) else str(value) for name, value in record.metrics.items()}
    body = {"step": record.step, "time": record.time, "metrics": metrics}
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Record | None:
    """Return a line's record, or None when it isn't one."""
    try:
        body: Any = json.loads(line)
        step, time, metrics = body["step"], float(body["time"]), body["metrics"]
        if type(step) is not int or step not in _STEPS or not _TIMES[0] <= time < _TIMES[1]:
            return None
        if not isinstance(metrics, Mapping):
            return None
        values = {name: _NON_FINITE[v] if isinstance(v, str) else float(v) for name, v in metrics.items()}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):  # Overflow: a number of 400 digits
        return None
    return Record(step, time, values)


def _whole_part(data: bytes) -> tuple[int, int | None]:
    """Return the size of the whole lines and the step of the last of them that is a record."""
    end = data.rfind(b"\n") + 1
    for line in reversed(data[:end].splitlines()):
        if (record := decode(line)) is not None:
            return end, record.step
    return end, None


def _read_from(fd: int, offset: int) -> bytes:
    parts = []
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
