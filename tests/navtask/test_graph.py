"""What a CUDA graph asks of a step, as far as it shows without a GPU: no look at a value, and buffers that stay."""

import pytest
import torch
import warp as wp
from navsetup import load_nav
from reachsetup import load_reach
from torch.utils._python_dispatch import TorchDispatchMode

from navtask.errors import TermError
from navtask.nav.env import NavEnv
from navtask.reach.env import ReachEnv

pytestmark = pytest.mark.xdist_group("mujoco_warp")

LOOKS = {
    "aten::_local_scalar_dense",  # .item(), bool(), an if on a tensor
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
    "aten::lift_fresh",  # torch.tensor([...]): a copy from the host
    "aten::repeat_interleave",
}


class NoLook(TorchDispatchMode):
    """Fails on operations whose result, or whose shape, the host would have to wait for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        by_mask = func._schema.name in ("aten::index", "aten::index_put_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if by_mask or func._schema.name in LOOKS:
            raise AssertionError(f"a look at a value: {func._schema.name}")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def no_look(monkeypatch):
    """A context in which neither torch nor Warp hands a value to the host."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("a look at a value")

    for method in ("numpy", "tolist", "__array__", "cpu"):
        monkeypatch.setattr(torch.Tensor, method, refuse)
    monkeypatch.setattr(wp.array, "numpy", refuse)
    for function in ("synchronize", "synchronize_device", "synchronize_stream"):
        monkeypatch.setattr(wp, function, refuse)
    return NoLook


def nav(auto_reset=True, **changes):
    config = load_nav(episode_length=1.0, **changes)
    return NavEnv(config, num_envs=8, seed=0, backend="mujoco_warp", privileged=True, auto_reset=auto_reset)


def noisy_with_history(auto_reset=True):
    noise = {**vars(load_nav().lidar), "noise_std": 0.02, "dropout": 0.05}
    return nav(auto_reset, history=3, lidar=type(load_nav().lidar)(**noise))


def reach(auto_reset=True):
    return ReachEnv(load_reach(episode_length=0.2), num_envs=8, seed=0, backend="mujoco_warp", auto_reset=auto_reset)


KINDS = {"nav": nav, "nav, noisy and with history": noisy_with_history, "reach": reach}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.mark.parametrize("auto_reset", [True, False])
def test_a_step_looks_at_no_value(kind, auto_reset, no_look):
    env = kind(auto_reset)
    actions = torch.rand(25, 8, env.num_actions, generator=torch.Generator().manual_seed(0)) * 2 - 1
    ended = torch.zeros(8)
    with no_look():
        for given in actions:
            ended += env._step(given)[2]
    assert (ended >= 1).all(), "resets were among these steps"


def test_a_term_that_looks_is_found_out(no_look):
    """The test above can fail."""
    env = nav()
    term = env.reward.terms[0]
    env.reward.terms[0] = lambda context: term(context) * context.success.sum().item()
    with no_look(), pytest.raises(TermError, match="reward term 'goal' raised AssertionError: a look at a value"):
        env._step(torch.zeros(8, 3))


def addresses(thing, path="env", seen=None):
    """Where every tensor and array lies that can be reached from an object of ours."""
    seen = set() if seen is None else seen
    if isinstance(thing, torch.Tensor):
        return {path: thing.data_ptr()}
    if isinstance(thing, wp.array):
        return {path: thing.ptr}
    if id(thing) in seen:
        return {}
    seen.add(id(thing))
    if isinstance(thing, dict):
        parts = thing.items()
    elif isinstance(thing, (list, tuple)):
        parts = enumerate(thing)
    elif type(thing).__module__.split(".")[0] in ("navtask", "mujoco_warp"):
        parts = vars(thing).items()
    else:
        return {}
    return {p: a for name, part in parts for p, a in addresses(part, f"{path}.{name}", seen).items()}


@pytest.mark.parametrize("auto_reset", [True, False])
def test_every_buffer_stays_where_it_is(kind, auto_reset):
    """A graph holds addresses: what is replaced instead of overwritten goes on in a place that nobody looks at."""
    env = kind(auto_reset)
    before = addresses(env)
    assert {"env.active", "env.episode.step", "env.physics.qpos", "env._books.actions"} <= set(before)
    assert len(before) > 150
    for seed in range(12):
        env.step(torch.rand(8, env.num_actions, generator=torch.Generator().manual_seed(seed)) * 2 - 1)
    env.load(env.state())
    env.restart()
    assert addresses(env) == before


def test_without_a_gpu_there_is_no_graph():
    assert not nav().cuda_graph
