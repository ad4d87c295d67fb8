"""The two engines side by side: one task, whichever moves the bodies."""

import pytest
import torch
from navsetup import load_nav
from reachsetup import load_reach
from worlds import TOUCHED, Worlds, first_touch, random_ctrl

from navtask.nav.env import NavEnv
from navtask.reach.env import ReachEnv

pytestmark = pytest.mark.xdist_group("mujoco_warp")

BOTH = ("mujoco_c", "mujoco_warp")


def test_free_motion_agrees_for_500_steps():
    """To and fro, so that nobody meets a wall; every second command turns the robot round."""
    c, warp = (Worlds(backend, 8) for backend in BOTH)
    generator = torch.Generator().manual_seed(0)
    for _ in range(250):
        ctrl = random_ctrl(8, generator)
        for there_and_back in (ctrl, -ctrl):
            c.drive(there_and_back)
            warp.drive(there_and_back)
            assert (c.qpos - warp.qpos).abs().max() < 1e-3
    assert not c.touching.any()
    assert not warp.touching.any()
    assert (c.qvel - warp.qvel).abs().max() < 1e-2


@pytest.mark.parametrize("kind", TOUCHED)
def test_the_first_touch_is_at_the_same_instant_from_every_side(kind):
    (when_c, where_c), (when_warp, where_warp) = (first_touch(backend, kind) for backend in BOTH)
    assert torch.equal(when_c, when_warp)
    assert (where_c - where_warp).abs().max() < 1e-4


@pytest.fixture(scope="module")
def both():
    """The same rooms on each engine, and everything observed of them over steps enough for rooms to end and be drawn
    anew, until the two had to part."""
    config = load_nav(episode_length=2.0)
    envs = [NavEnv(config, num_envs=32, seed=3, backend=backend, privileged=True) for backend in BOTH]
    generator = torch.Generator().manual_seed(0)
    history = []
    for _ in range(45):
        actions = torch.rand(32, 3, generator=generator) * 2 - 1
        actions[:, 0] = 1.0
        history.append([env.step(actions) for env in envs])
    return envs, history


def test_a_task_is_the_same_on_both_engines(both):
    """Same rooms, observations, rewards and ends, episode after episode: nothing of a touch outlives its episode."""
    envs, history = both
    ended = 0
    for step, ((obs_c, reward_c, done_c, extras_c), (obs_w, reward_w, done_w, extras_w)) in enumerate(history):
        assert torch.equal(done_c, done_w), step
        for name in ("terminated", "time_outs", "success"):
            assert torch.equal(extras_c[name], extras_w[name]), (step, name)
        for group in ("policy", "privileged"):
            assert (obs_c[group] - obs_w[group]).abs().max() < 2e-3, (step, group)
        free = ~extras_c["terminated"]
        assert (reward_c - reward_w)[free].abs().max() < 1e-3, step
        ended += int(done_c.sum())
    assert torch.equal(envs[0].rooms.centre, envs[1].rooms.centre)
    assert ended > 64
    collisions = sum(int((e[0][3]["terminated"] & ~e[0][3]["success"]).sum()) for e in history)
    assert collisions > 8


def test_the_arm_is_the_same_on_both_engines():
    envs = [ReachEnv(load_reach(episode_length=0.5), num_envs=8, seed=0, backend=backend) for backend in BOTH]
    generator = torch.Generator().manual_seed(0)
    ended = 0
    for step in range(60):
        actions = torch.rand(8, envs[0].num_actions, generator=generator) * 2 - 1
        (obs_c, reward_c, done_c, _), (obs_w, reward_w, done_w, _) = (env.step(actions) for env in envs)
        assert torch.equal(done_c, done_w), step
        assert (obs_c["policy"] - obs_w["policy"]).abs().max() < 1e-3, step
        assert (reward_c - reward_w).abs().max() < 1e-3, step
        ended += int(done_c.sum())
    assert ended >= 16


def test_what_an_engine_drops_is_among_the_statistics(both):
    for env in both[0]:
        assert "Physics/dropped" not in env.pop_statistics()
        env.physics.dropped += 3
        assert env.pop_statistics()["Physics/dropped"] == 3
        assert "Physics/dropped" not in env.pop_statistics()
