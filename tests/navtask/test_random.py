"""The random numbers: known answers of Philox4x32-10, and that each depends on its key alone."""

import pytest
import torch
import warp as wp

from navtask import random


@wp.kernel
def run_philox(
    counter: wp.array2d(dtype=wp.uint32), key: wp.array2d(dtype=wp.uint32), out: wp.array2d(dtype=wp.uint32)
):
    i = wp.tid()
    bits = random.philox(random.vec4u(counter[i, 0], counter[i, 1], counter[i, 2], counter[i, 3]), key[i, 0], key[i, 1])
    for k in range(4):
        out[i, k] = bits[k]


@wp.kernel
def run_uniform(source: random.Source, room: int, episode: int, purpose: int, first: int, out: wp.array(dtype=wp.vec4)):
    i = wp.tid()
    out[i] = random.uniform4(random.key(source, room, episode), purpose, first + i)


@wp.kernel
def run_normal(u: wp.array(dtype=wp.vec4), out: wp.array(dtype=wp.vec2)):
    i = wp.tid()
    out[i] = random.normal2(u[i][0], u[i][1])


def uniform(num, *, seed=0, stream=0, first_room=0, room=0, episode=0, purpose=0, first=0):
    out = torch.zeros(num, 4)
    inputs = [random.source(seed, stream, first_room), room, episode, purpose, first, wp.from_torch(out, dtype=wp.vec4)]
    wp.launch(run_uniform, dim=num, inputs=inputs, device="cpu")
    return out


# From the reference implementation's known answers (Random123, kat_vectors): counter, key, result.
KNOWN = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
)


def test_known_answers():
    columns = [
        wp.array([[int(word, 16) for word in row[k].split()] for row in KNOWN], dtype=wp.uint32, device="cpu")
        for k in range(3)
    ]
    out = wp.zeros_like(columns[2])
    wp.launch(run_philox, dim=len(KNOWN), inputs=[columns[0], columns[1], out], device="cpu")
    assert out.numpy().tolist() == columns[2].numpy().tolist()


def test_uniform_numbers_are_uniform_and_below_one():
    u = uniform(100_000)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert torch.allclose(u.mean(0), torch.full((4,), 0.5), atol=0.005)
    assert torch.allclose(u.var(0), torch.full((4,), 1 / 12), atol=0.002)
    assert (torch.corrcoef(u.T) - torch.eye(4)).abs().max() < 0.02
    # Neighbours in index are as unrelated as any.
    assert torch.corrcoef(torch.stack([u[1:, 0], u[:-1, 0]]))[0, 1].abs() < 0.02


@pytest.mark.parametrize("what", ["seed", "stream", "room", "episode", "purpose"])
def test_every_part_of_the_key_matters(what):
    assert not torch.isclose(uniform(100), uniform(100, **{what: 1})).any(-1).all()
    assert (uniform(1000) == uniform(1000, **{what: 1})).float().mean() < 0.01


def test_a_number_depends_on_its_key_and_index_alone():
    assert torch.equal(uniform(10, room=7, first=90), uniform(100, room=7)[90:])
    assert torch.equal(uniform(10, room=2, first_room=5), uniform(10, room=7))


def test_normal_numbers():
    u = uniform(100_000)
    out = torch.zeros(len(u), 2)
    inputs = [wp.from_torch(u, dtype=wp.vec4), wp.from_torch(out, dtype=wp.vec2)]
    wp.launch(run_normal, dim=len(u), inputs=inputs, device="cpu")
    assert torch.isfinite(out).all()
    assert torch.allclose(out.mean(0), torch.zeros(2), atol=0.015)
    assert torch.allclose(out.std(0), torch.ones(2), atol=0.01)
    assert ((out.abs() > 1.959964).float().mean(0) - 0.05).abs().max() < 0.003
    assert torch.corrcoef(out.T)[0, 1].abs() < 0.015


def test_extreme_numbers_give_finite_normal_ones():
    u = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1 - 2**-24, 1 - 2**-24, 0.0, 0.0]])
    out = torch.zeros(2, 2)
    inputs = [wp.from_torch(u, dtype=wp.vec4), wp.from_torch(out, dtype=wp.vec2)]
    wp.launch(run_normal, dim=2, inputs=inputs, device="cpu")
    assert torch.isfinite(out).all()
