"""A job's curves: every scalar of an iteration goes to `metrics.jsonl` and to a TensorBoard event file.

Both files get the same names, values, steps and times. TensorBoard stores 32-bit floats, `metrics.jsonl` the value as
it came; they are equal once rounded to 32 bits. All values of a step travel in one event, not in one for each value.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from orchestrator.record import wal

METRICS_FILE = "metrics.jsonl"
EVENT_FILES = "events.out.tfevents.*"

_FLOAT32_MAX = 3.4028234663852886e38
_FLUSH_SECONDS = 5  # how late TensorBoard may be; metrics.jsonl is never late


class Curves:
    """Writes the curves of one training into its folder.

    One process writes them, from one thread, with increasing steps. The log is what counts: it is written first, and
    after an interruption the event file is made again from it, since an event file can't be shortened and may lack its
    tail.
    """

    def __init__(self, folder: Path, resume_step: int | None = None) -> None:
        """Open the curves in `folder`, which exists.

        `resume_step` is the last step that counts when a training goes on from a checkpoint: later ones are dropped
        from both files. None starts anew and drops whatever is there. So write a step before saving its checkpoint.
        """
        path = folder / METRICS_FILE
        wal.truncate(path, resume_step)
        self._log = wal.MetricsLog(path)
        stale = [file for file in folder.glob(EVENT_FILES) if file.stat().st_size]
        self._events = EventFileWriter(str(folder), max_queue_size=100, flush_secs=_FLUSH_SECONDS)
        if stale:
            # A TensorBoard that is running has read the old files: this event makes it forget their points.
            start = SessionLog(status=SessionLog.START)
            self._events.add_event(Event(wall_time=time.time(), step=0, session_log=start))
        for record in wal.read(path):
            self._events.add_event(_event(record))
        self._events.flush()
        for file in stale:
            # Emptied, not removed: a TensorBoard that has it open would wait for it to come back and never go on.
            os.truncate(file, 0)

    @property
    def last_step(self) -> int | None:
        """Newest step that both files hold."""
        return self._log.last_step

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write all metrics of one step.

        Raises ValueError when the step doesn't increase, OSError when the disk refuses.
        """
        values = {name: float(value) for name, value in metrics.items()}
        record = wal.Record(step, round(time.time(), 3), values)
        self._log.append(record)
        self._events.add_event(_event(record))

    def close(self) -> None:
        """Write what is queued and close both files."""
        self._events.close()
        self._log.close()


def _event(record: wal.Record) -> Event:
    summary = Summary(value=[Summary.Value(tag=name, simple_value=_float32(v)) for name, v in record.metrics.items()])
    return Event(wall_time=record.time, step=record.step, summary=summary)


def _float32(value: float) -> float:
    """Clip finite values to the range of 32 bits; protobuf refuses, or turns into inf, what is beyond."""
    if -_FLOAT32_MAX <= value <= _FLOAT32_MAX or value in (float("inf"), float("-inf")) or value != value:
        return value
    return _FLOAT32_MAX if value > 0 else -_FLOAT32_MAX
