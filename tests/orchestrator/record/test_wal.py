import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest

from orchestrator.record import wal
from orchestrator.record.wal import MetricsLog, Record, Tail


def record(step, **metrics):
    return Record(step, 1_790_000_000.0 + step / 8, {"Train/env_steps": float(step * 100), **metrics})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def write(path, *steps):
    log = MetricsLog(path)
    for step in steps:
        log.append(record(step))
    log.close()


def steps(records):
    return [r.step for r in records]


def test_what_is_written_comes_out(path):
    values = {"a": 0.1, "b": -1e300, "c": 5e-324, "d": 123456789.0, "e": math.inf, "f": -math.inf, "g": math.nan}
    log = MetricsLog(path)
    log.append(Record(0, 1.125, values))
    log.close()
    (got,) = wal.read(path)
    assert got.step == 0
    assert got.time == 1.125
    assert math.isnan(got.metrics.pop("g"))
    assert math.isnan(values.pop("g"))
    assert got.metrics == values


def test_a_line_is_strict_json(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    line = wal.encode(Record(3, 1.5, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0}))
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line, parse_constant=refuse) == {
        "step": 3,
        "time": 1.5,
        "metrics": {"a": "nan", "b": "inf", "c": "-inf", "d": 1.0},
    }


@pytest.mark.parametrize("step", [5, 4])
def test_steps_must_increase(path, step):
    write(path, 5)
    log = MetricsLog(path)
    with pytest.raises(ValueError, match=rf"step {step} after step 5"):
        log.append(record(step))
    log.append(record(6))
    log.close()
    assert steps(wal.read(path)) == [5, 6]


def test_the_next_writer_cuts_off_a_torn_line(path):
    write(path, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + wal.encode(record(3))[:-5])
    write(path, 3, 4)
    assert path.read_bytes() == whole + wal.encode(record(3)) + wal.encode(record(4))


def test_a_write_that_fails_half_way_is_taken_back(path, monkeypatch):
    log = MetricsLog(path)
    log.append(record(1))
    real, calls = os.write, []

    def full_disk(fd, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real(fd, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OSError, match="No space"):
        log.append(record(2))
    monkeypatch.setattr(os, "write", real)
    assert path.read_bytes() == wal.encode(record(1))
    log.append(record(2))
    log.close()
    assert steps(wal.read(path)) == [1, 2]


def test_truncate_keeps_up_to_the_step(path):
    write(path, 1, 2, 3, 4)
    inode = path.stat().st_ino
    assert wal.truncate(path, 2) == 2
    assert steps(wal.read(path)) == [1, 2]
    assert path.stat().st_ino != inode, "edited in place"
    assert os.listdir(path.parent) == [path.name]


def test_truncate_with_nothing_to_drop_leaves_the_file(path):
    assert wal.truncate(path, 2) is None
    assert not path.exists()
    write(path, 1, 2)
    inode = path.stat().st_ino
    assert wal.truncate(path, 7) == 2
    assert path.stat().st_ino == inode


def test_truncate_to_nothing(path):
    write(path, 1, 2)
    assert wal.truncate(path, None) is None
    assert path.read_bytes() == b""


def test_truncate_drops_a_torn_line(path):
    write(path, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 3')
    assert wal.truncate(path, 2) == 2
    assert path.read_bytes() == whole


def test_a_truncate_that_fails_damages_nothing(path, monkeypatch):
    write(path, 1, 2, 3)
    before = path.read_bytes()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        wal.truncate(path, 1)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_tail_returns_each_step_once(path):
    tail = Tail(path)
    assert tail.read() == []
    log = MetricsLog(path)
    assert tail.read() == []
    log.append(record(1))
    assert tail.read() == [record(1)]
    assert tail.read() == []
    log.append(record(2))
    log.append(record(3))
    assert steps(tail.read()) == [2, 3]
    assert tail.last_step == 3


def test_tail_leaves_a_torn_line_until_it_is_whole(path):
    tail = Tail(path)
    line = wal.encode(record(1))
    for cut in range(len(line)):
        path.write_bytes(line[:cut])
        assert tail.read() == []
    path.write_bytes(line)
    assert steps(tail.read()) == [1]


def test_tail_after_truncate_returns_only_what_is_new(path):
    write(path, 1, 2, 3, 4)
    tail = Tail(path)
    assert steps(tail.read()) == [1, 2, 3, 4]
    wal.truncate(path, 2)
    assert tail.read() == []
    write(path, 3)
    assert tail.read() == []
    write(path, 4, 5, 6)
    assert steps(tail.read()) == [5, 6]


def test_tail_notices_a_replaced_file_of_the_same_size(path):
    write(path, 1, 2)
    tail = Tail(path)
    tail.read()
    wal.truncate(path, None)
    wal.truncate(path, None)
    write(path, 3, 4)
    assert steps(tail.read()) == [3, 4]


def test_tail_starts_after_a_step(path):
    write(path, 1, 2, 3)
    assert steps(Tail(path, after=2).read()) == [3]


def test_tail_steps_over_what_is_no_record(path):
    good = wal.encode(record(1))
    path.write_bytes(b"\x00\xff garbage\n[1]\n" + good + b'{"step": "2", "time": 1, "metrics": {}}\n{"step": 3}\n')
    tail = Tail(path)
    assert steps(tail.read()) == [1]
    assert tail.skipped_lines == 4


def test_a_look_at_nothing_new_reads_nothing(path, monkeypatch):
    write(path, 1)
    tail = Tail(path)
    tail.read()

    def refuse(*_):
        raise AssertionError("read although nothing is new")

    monkeypatch.setattr(os, "pread", refuse)
    monkeypatch.setattr(os, "open", refuse)
    assert tail.read() == []


WRITER = """
import sys, time
from orchestrator.record.wal import MetricsLog, Record
log = MetricsLog(__import__("pathlib").Path(sys.argv[1]))
step = log.last_step or 0
while True:
    step += 1
    log.append(Record(step, time.time(), {"Train/env_steps": float(step), "x": step * 0.5}))
    print(step, flush=True)
"""


def test_killed_writers_lose_and_repeat_nothing(path):
    """Every step that a writer said it had written comes out, once, though each writer is killed in the middle."""
    tail, got = Tail(path), []
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(20)]
        got += tail.read()
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.stdout.read().split()[:-1]]
        process.wait()
        got += tail.read()
        assert set(said) <= set(steps(got))
    assert steps(got) == list(range(1, len(got) + 1))
    assert [r.metrics["x"] for r in got] == [0.5 * (i + 1) for i in range(len(got))]


def test_appending_is_cheap(path):
    """45 metrics cost far less than a thousandth of an iteration of 250 ms (loose: the machine may be busy)."""
    log = MetricsLog(path)
    metrics = {f"Group/metric_{i}": i * 0.1 for i in range(45)}
    start = time.process_time()
    for step in range(200):
        log.append(Record(step, 1.0, metrics))
    log.close()
    assert (time.process_time() - start) / 200 < 0.5e-3


@pytest.mark.parametrize(
    "body",
    [
        f'{{"step": 1, "time": 1, "metrics": {{"a": {"9" * 400}}}}}',
        f'{{"step": 1, "time": {"9" * 400}, "metrics": {{}}}}',
        f'{{"step": {"9" * 400}, "time": 1, "metrics": {{}}}}',
        '{"step": -1, "time": 1, "metrics": {}}',
        '{"step": 1, "time": NaN, "metrics": {}}',
        '{"step": 1, "time": 1e300, "metrics": {}}',
    ],
)
def test_numbers_that_nothing_can_hold_are_no_record(body):
    assert wal.decode(body.encode()) is None
