import math
import os
import struct

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from orchestrator.job.curves import Curves
from orchestrator.record import wal


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def metrics(step):
    return {
        "Train/env_steps": step * 8192.0,
        "Train/mean_reward": math.sin(step) * 10,
        "PPO/kl_mean": 0.01 / (step + 1),
        "Loss/learning_rate": 1e-300 if step == 2 else 3e-4,
    }


def from_tensorboard(folder):
    """{tag: [(step, wall time, value)]} as TensorBoard reads the folder."""
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(e.step, e.wall_time, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def from_log(folder):
    """The same of metrics.jsonl, values rounded to the 32 bits that TensorBoard has."""
    result = {}
    for record in wal.read(folder / "metrics.jsonl"):
        for name, value in record.metrics.items():
            result.setdefault(name, []).append((record.step, record.time, float32(value)))
    return result


def event_files(folder):
    return [file for file in sorted(folder.glob("events.out.tfevents.*")) if file.stat().st_size]


def test_both_files_hold_the_same(tmp_path):
    curves = Curves(tmp_path)
    for step in range(1, 6):
        curves.write(step, metrics(step) | ({"Eval/success_rate": 0.5 + step / 100} if step % 2 else {}))
    curves.close()
    assert from_tensorboard(tmp_path) == from_log(tmp_path)
    assert [point[0] for point in from_log(tmp_path)["Eval/success_rate"]] == [1, 3, 5]
    assert wal.read(tmp_path / "metrics.jsonl")[2].metrics["Train/mean_reward"] == math.sin(3) * 10


def test_one_event_a_step(tmp_path):
    curves = Curves(tmp_path)
    for step in range(3):
        curves.write(step, metrics(step))
    curves.close()
    (file,) = event_files(tmp_path)
    events = [e for e in EventFileLoader(str(file)).Load() if e.HasField("summary")]
    assert [len(e.summary.value) for e in events] == [4, 4, 4]


def test_non_finite_and_huge_values(tmp_path):
    curves = Curves(tmp_path)
    curves.write(0, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1e300, "e": -1e300})
    curves.close()
    got = {tag: points[0][2] for tag, points in from_tensorboard(tmp_path).items()}
    assert math.isnan(got["a"])
    assert (got["b"], got["c"]) == (math.inf, -math.inf)
    assert got["d"] == -got["e"] == float32(3.4028234663852886e38)
    assert wal.read(tmp_path / "metrics.jsonl")[0].metrics["d"] == 1e300


def test_values_may_be_tensors_or_numpy_numbers(tmp_path):
    import numpy as np
    import torch

    curves = Curves(tmp_path)
    curves.write(0, {"a": torch.tensor(0.25), "b": np.float32(0.5), "c": 3})  # type: ignore[dict-item]
    curves.close()
    assert wal.read(tmp_path / "metrics.jsonl")[0].metrics == {"a": 0.25, "b": 0.5, "c": 3.0}


def test_resume_drops_later_steps_from_both(tmp_path):
    curves = Curves(tmp_path)
    for step in range(1, 8):
        curves.write(step, metrics(step) | {"Only/late": 1.0} if step > 5 else metrics(step))
    del curves  # as a killed job leaves it: not closed
    again = Curves(tmp_path, resume_step=4)
    assert again.last_step == 4
    for step in (5, 6):
        again.write(step, {name: value + 1 for name, value in metrics(step).items()})
    again.close()
    assert from_tensorboard(tmp_path) == from_log(tmp_path)
    assert [point[0] for point in from_log(tmp_path)["PPO/kl_mean"]] == [1, 2, 3, 4, 5, 6]
    assert "Only/late" not in from_tensorboard(tmp_path)
    assert len(event_files(tmp_path)) == 1


def test_resume_mends_a_torn_event_file(tmp_path):
    curves = Curves(tmp_path)
    for step in range(1, 5):
        curves.write(step, metrics(step))
    curves.close()
    (file,) = event_files(tmp_path)
    os.truncate(file, file.stat().st_size - 150)
    assert from_tensorboard(tmp_path) != from_log(tmp_path)
    Curves(tmp_path, resume_step=4).close()
    assert from_tensorboard(tmp_path) == from_log(tmp_path)


def test_a_start_without_a_step_begins_anew(tmp_path):
    for _ in range(2):
        curves = Curves(tmp_path)
        assert curves.last_step is None
        curves.write(1, metrics(1))
        curves.close()
    assert from_tensorboard(tmp_path) == from_log(tmp_path)
    assert len(wal.read(tmp_path / "metrics.jsonl")) == 1


def test_a_running_tensorboard_forgets_the_dropped_steps(tmp_path):
    """A reader that has seen the old file sees no step twice, and none of the dropped ones."""
    curves = Curves(tmp_path)
    for step in range(1, 7):
        curves.write(step, {"x": float(step)})
    curves.close()
    (file,) = event_files(tmp_path)  # named after the second in which it began, and a job doesn't begin twice in one
    file.rename(tmp_path / "events.out.tfevents.1790000000.host.1.0")
    reader = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    reader.Reload()
    assert len(reader.Scalars("x")) == 6
    again = Curves(tmp_path, resume_step=3)
    again.write(4, {"x": 40.0})
    again.close()
    reader.Reload()
    assert [(e.step, e.value) for e in reader.Scalars("x")] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0)]


def test_steps_must_increase(tmp_path):
    curves = Curves(tmp_path)
    curves.write(3, {"x": 1.0})
    with pytest.raises(ValueError, match="must increase"):
        curves.write(3, {"x": 1.0})
    curves.close()
    assert len(from_tensorboard(tmp_path)["x"]) == 1
