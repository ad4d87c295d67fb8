"""The task on a GPU, its steps captured as graphs. Skipped where there is none."""

import pytest
import torch
from navsetup import load_nav
from worlds import FURNITURE, TOUCHED, Worlds, first_touch, random_ctrl

from navtask.nav.env import NavEnv
from orchestrator.config import compose
from orchestrator.job import spec
from orchestrator.job.run import run_trial

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.xdist_group("gpu"),
]

ROOMS = 64


def make_env(graph=True, **settings):
    env = NavEnv(
        load_nav(episode_length=2.0),
        num_envs=ROOMS,
        device="cuda",
        backend="mujoco_warp",
        privileged=True,
        **{"seed": 3, **settings},
    )
    env.cuda_graph = graph
    return env


def actions(steps):
    given = torch.rand(steps, ROOMS, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    given[..., 0] = 1.0
    return given.cuda()


def test_free_motion_is_that_of_mujoco_c():
    c, warp = Worlds("mujoco_c", 8), Worlds("mujoco_warp", 8, device="cuda")
    generator = torch.Generator().manual_seed(0)
    for _ in range(250):
        ctrl = random_ctrl(8, generator)
        for there_and_back in (ctrl, -ctrl):
            c.drive(there_and_back)
            warp.drive(there_and_back)
        assert (c.qpos - warp.qpos).abs().max() < 1e-3


@pytest.mark.parametrize("kind", TOUCHED)
def test_the_first_touch_is_at_the_same_instant(kind):
    (when_c, where_c), (when_warp, where_warp) = first_touch("mujoco_c", kind), first_touch("mujoco_warp", kind, "cuda")
    assert torch.equal(when_c, when_warp)
    assert (where_c - where_warp).abs().max() < 1e-4


@pytest.mark.parametrize("rows", [[0], [3], [1, 2, 3, 4, 5, 6, 7]])
def test_a_reset_leaves_the_other_worlds_bit_for_bit(rows):
    worlds = Worlds("mujoco_warp", 8, device="cuda", **FURNITURE)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        worlds.drive(random_ctrl(8, generator))
    before, mask = worlds.now(), torch.zeros(8, dtype=torch.bool)
    assert worlds.touching.any()
    mask[rows] = True
    worlds.put(mask, [3.5, 3.5, 0.0])
    for was, now in zip(before, worlds.now(), strict=True):
        assert torch.equal(was[~mask], now[~mask])
    assert (worlds.qpos[mask] == torch.tensor([3.5, 3.5, 0.0])).all()
    assert not worlds.touching[mask].any()


@pytest.mark.parametrize("auto_reset", [True, False])
def test_replayed_steps_are_those_without_a_graph(auto_reset):
    """Until a room's two selves touch something at different instants: sums are not made in a fixed order here."""
    graph, eager = (make_env(on, auto_reset=auto_reset) for on in (True, False))
    alike = torch.ones(ROOMS, dtype=torch.bool, device="cuda")
    ended = 0
    for given in actions(60):
        (obs, reward, done, extras), (obs_e, reward_e, done_e, extras_e) = graph.step(given), eager.step(given)
        alike &= done == done_e
        for name in ("time_outs", "terminated", "success"):
            alike &= extras[name] == extras_e[name]
        assert (reward - reward_e)[alike].abs().max() < 1e-3
        for one, other in ((obs, obs_e), (extras["final_obs"], extras_e["final_obs"])):
            for group in ("policy", "privileged"):
                assert (one[group] - other[group])[alike].abs().max() < 1e-3
        ended += int(done.sum())
    assert alike.float().mean() > 0.9
    assert ended >= (2 * ROOMS if auto_reset else 1)
    assert graph.pop_statistics().keys() == eager.pop_statistics().keys()


def test_what_a_graph_returns_never_changes_later():
    env = make_env()
    kept = [(step, env.step(given)) for step, given in enumerate(actions(8))]
    copies = [(obs["policy"].clone(), reward.clone(), done.clone()) for _, (obs, reward, done, _) in kept]
    for given in actions(8):
        env.step(given)
    for (_, (obs, reward, done, _)), then in zip(kept, copies, strict=True):
        assert torch.equal(obs["policy"], then[0])
        assert torch.equal(reward, then[1])
        assert torch.equal(done, then[2])
    assert len({obs["policy"].data_ptr() for _, (obs, _, _, _) in kept}) == 8


def test_capturing_changes_nothing_of_the_state():
    """The steps that warm up are undone: the first replay is the first step."""
    env, fresh = make_env(), make_env(graph=False)
    given = actions(1)[0]
    one, other = env.step(given)[0], fresh.step(given)[0]
    assert torch.equal(env.episode.step, fresh.episode.step)
    assert (one["policy"] - other["policy"]).abs().max() < 1e-3


def test_goes_on_from_a_state_under_the_same_graph():
    env = make_env()
    for given in actions(10):
        env.step(given)
    state, given = env.state(), actions(1)[0]
    one = env.step(given)[0]["policy"]
    for more in actions(5):
        env.step(more)
    env.load(state)
    assert (env.step(given)[0]["policy"] - one).abs().max() < 1e-3


def test_the_same_rooms_as_on_a_cpu():
    gpu = make_env()
    cpu = NavEnv(load_nav(episode_length=2.0), num_envs=ROOMS, seed=3, privileged=True)
    assert (gpu.rooms.centre.cpu() - cpu.rooms.centre).abs().max() < 1e-4
    seen = gpu.get_observations()["policy"].cpu()
    assert (seen - cpu.get_observations()["policy"]).abs().max() < 1e-3


def test_trains_and_says_so(tmp_path, capsys):
    small = ["num_envs=64", "algorithm.iterations=4", "evaluation.every=2", "evaluation.num_rooms=32"]
    config = compose("device=cuda", *small)
    spec.write(spec.TrialSpec(study="test", number=0, seed=1, params={}, folder=tmp_path / "trial", config=config))
    assert run_trial(tmp_path / "trial") == 0
    assert "physics: mujoco_warp on cuda, one CUDA graph a step" in capsys.readouterr().out


def test_a_term_that_looks_at_a_value_is_refused_with_the_way_out():
    env = make_env()
    term = env.reward.terms[0]
    env.reward.terms[0] = lambda context: term(context) * context.success.sum().item()
    with pytest.raises(RuntimeError, match=r"can't be captured.*physics\.cuda_graph=false"):
        env.step(actions(1)[0])
