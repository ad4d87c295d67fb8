"""Recorded kernels: what they read and write, and in which order."""

import torch
import warp as wp

from navtask.kernels import Recorded


@wp.struct
class Factor:
    by: float


@wp.kernel
def scale(given: wp.array(dtype=wp.vec2), factor: Factor, out: wp.array(dtype=wp.vec2)):
    i = wp.tid()
    out[i] = factor.by * given[i]


@wp.kernel
def add(given: wp.array(dtype=wp.vec2), term: float, out: wp.array(dtype=wp.vec2)):
    i = wp.tid()
    out[i] = given[i] + wp.vec2(term)


def test_they_read_and_write_the_tensors_as_they_are_at_a_call_one_after_the_other():
    given, between, out = (torch.zeros(3, 2) for _ in range(3))
    factor = Factor()
    factor.by = 2.0
    run = Recorded(given.device, (scale, 3, [given, factor, between]), (add, 3, [between, 1.0, out]))
    assert out.eq(0).all(), "nothing runs before it is called"
    for seed in range(2):
        given.copy_(torch.rand(3, 2, generator=torch.Generator().manual_seed(seed)))
        run()
        assert torch.equal(out, 2.0 * given + 1.0)


def test_a_column_of_a_wider_tensor_is_written_in_place():
    whole = torch.zeros(4, 3, 2)
    Recorded(whole.device, (add, 4, [torch.ones(4, 2), 1.0, whole[:, 1]]))()
    assert torch.equal(whole[:, 1], torch.full((4, 2), 2.0))
    assert whole.sum() == 16


def test_tensors_live_as_long_as_what_was_recorded_of_them():
    out = torch.zeros(1000, 2)
    run = Recorded(out.device, (add, 1000, [torch.full((1000, 2), 5.0), 1.0, out]))
    assert all((torch.full((1000, 2), -1.0) == -1.0).all() for _ in range(50))  # would take a freed one's place
    run()
    assert out.eq(6.0).all()
