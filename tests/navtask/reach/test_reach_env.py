"""The reaching task: what a step is, what an episode draws, and what counts as reached. What all tasks have in common
is tested in ``tests/navtask/test_contract.py``."""

import math

import mujoco
import pytest
import torch
from reachsetup import load_reach, load_targets, make_reach, towards_target, use_targets

from navtask.reach.arm import JOINTS, build_model, read_arm

ARM = read_arm()
HOME = torch.tensor(ARM.home, dtype=torch.float32)


def actions(num, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(steps, num, JOINTS, generator=generator) * 2 - 1


def engine_tool(q):
    """Where the engine has the tool at one posture, m."""
    model = build_model(0.004)
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    return torch.tensor(data.site("tool").xpos)


class TestInstants:
    def test_the_observation_is_of_the_instant_of_the_true_state(self):
        """Computed anew from where the engine says that the joints are."""
        env = make_reach(num_envs=16)
        for action in actions(16, 20):
            observation, *_ = env.step(action)
        q, v = env.physics.qpos.double(), env.physics.qvel.double()
        tool = torch.stack([engine_tool(row) for row in q.numpy()])
        to_target = (env.targets.target - tool) / env.config.goal_distance_scale
        expected = torch.cat([q - HOME, v / ARM.v_max, to_target], dim=-1).float()
        assert torch.allclose(observation["policy"], expected, atol=1e-5)

    def test_reward_final_observation_and_end_are_of_one_instant(self):
        """All terms recomputed from the observation before the reset, in every room, whether it ended or not."""
        config = load_reach(goal_radius=0.1)
        config.rewards["action_smooth"].weight = -0.03
        env = make_reach(config, num_envs=128)
        last = torch.zeros(128, JOINTS)
        reached = 0
        for k in range(60):
            action = actions(128, 1, seed=k // 8)[0] * 1.5
            _, rewards, dones, extras = env.step(action)
            action = action.clamp(-1, 1)
            distance = extras["final_obs"]["policy"][:, 12:15].norm(dim=-1) * config.goal_distance_scale
            clear = (distance - config.goal_radius).abs() > 1e-6
            assert torch.equal(extras["success"][clear], (distance < config.goal_radius)[clear])
            assert torch.equal(extras["success"], extras["terminated"])
            expected = (
                -distance
                - 0.001 * action.square().sum(-1)
                + config.rewards["goal"].weight * extras["success"]
                - 0.03 * (action - last).square().sum(-1)
            )
            assert torch.allclose(rewards, config.reward_scale * expected, atol=1e-6)
            reached += int(extras["success"].sum())
            last = torch.where(dones.unsqueeze(-1), 0.0, action)
        assert reached > 20

    def test_the_observation_after_a_reset_is_of_the_new_episode(self):
        env = make_reach(load_reach(episode_length=0.2), num_envs=32)
        for action in actions(32, 25):
            observation, _, dones, _ = env.step(action)
            assert torch.equal(observation["policy"][dones, :6], (env.targets.start - HOME)[dones])
            assert (observation["policy"][dones, 6:12] == 0).all(), "at rest"
        assert env.episode.number.min() >= 2


class TestDrawing:
    def drawn(self, config=None, seeds=20):
        env_starts, env_targets = [], []
        for seed in range(seeds):
            env = make_reach(config or load_reach(episode_length=0.04), num_envs=64, seed=seed)
            for _ in range(3):
                env_starts.append(env.targets.start.clone())
                env_targets.append(env.targets.target.clone())
                env.step(torch.zeros(64, JOINTS))
                env.step(torch.zeros(64, JOINTS))
        return torch.cat(env_starts), torch.cat(env_targets)

    def test_starts_and_targets_are_uniform_over_rooms_episodes_and_seeds(self):
        """Mean and spread of a uniform distribution, its bounds kept and nearly reached, and no two alike."""
        start, target = self.drawn()
        config = load_targets()
        for values, centre, half in (
            (start, HOME, torch.full((JOINTS,), config.start_spread)),
            (target, torch.tensor(config.centre), torch.tensor(config.half_size)),
        ):
            unit = (values - centre) / half
            num = len(unit)
            assert unit.abs().max() <= 1.0 + 1e-5
            assert unit.abs().amax(0).min() > 0.995
            assert unit.mean(0).abs().max() < 5 / math.sqrt(3 * num)
            assert torch.allclose(unit.std(0), torch.full_like(unit[0], 1 / math.sqrt(3)), atol=0.02)
            assert len(torch.unique(values, dim=0)) == num

    def test_joints_and_targets_are_drawn_independently(self):
        start, target = self.drawn()
        correlation = torch.corrcoef(torch.cat([start, target], dim=-1).T)
        off_diagonal = correlation - torch.eye(JOINTS + 3)
        assert off_diagonal.abs().max() < 5 / math.sqrt(len(start))

    def test_an_episode_begins_at_the_start_posture_at_rest(self):
        env = make_reach(num_envs=16)
        assert torch.equal(env.physics.qpos, env.targets.start)
        assert (env.physics.qvel == 0).all()

    def test_the_settings_are_what_is_drawn(self):
        targets = load_targets(centre=[0.3, 0.1, 0.4], half_size=[0.0, 0.05, 0.0], start_spread=0.0)
        env = make_reach(load_reach(targets=targets), num_envs=64)
        assert torch.equal(env.targets.start, HOME.expand(64, JOINTS))
        assert torch.allclose(env.targets.target[:, [0, 2]], torch.tensor([0.3, 0.4]))
        assert (env.targets.target[:, 1] - 0.1).abs().max() <= 0.05 + 1e-6

    def test_no_episode_begins_at_its_target(self):
        env = make_reach(num_envs=4096)
        assert env.sensed.distance.min() > env.config.goal_radius


class TestEnds:
    def test_a_hundred_steps_of_a_fiftieth_of_a_second(self):
        config = load_reach()
        env = make_reach(config)
        assert env.max_episode_length == 100
        assert config.control_dt == pytest.approx(0.02)
        for k in range(100):
            _, _, dones, extras = env.step(torch.zeros(8, JOINTS))
            assert dones.all() == (k == 99)
        assert extras["time_outs"].all()
        assert not extras["terminated"].any()

    @pytest.mark.parametrize(("distance", "reached"), [(0.0199, True), (0.0201, False)])
    def test_reached_is_within_two_centimetres(self, distance, reached):
        env = make_reach(num_envs=3)
        tool = engine_tool(ARM.home)
        use_targets(env, start=HOME, target=tool + distance * torch.eye(3))
        _, rewards, dones, extras = env.step(torch.zeros(3, JOINTS))
        assert (dones == reached).all()
        assert (extras["success"] == reached).all()
        bonus = env.config.rewards["goal"].weight if reached else 0.0
        assert rewards.tolist() == pytest.approx([env.config.reward_scale * (bonus - distance)] * 3, abs=1e-5)

    def test_a_target_that_is_passed_in_motion_is_reached(self):
        """The tool needn't stop."""
        env = make_reach(num_envs=64)
        use_targets(env, start=HOME)
        speeds = []
        for _ in range(50):
            *_, extras = env.step(towards_target(env))
            speeds += extras["final_obs"]["policy"][extras["success"], 6:12].abs().amax(-1).tolist()
        assert len(speeds) >= 64
        assert min(speeds) > 0.5
        assert env.pop_statistics()["Episode_Termination/success"] == 1.0


class TestMirror:
    def test_a_mirrored_scene_and_mirrored_actions_give_mirrored_observations_and_equal_rewards(self):
        config = load_reach(goal_radius=0.06)
        config.observations["action_prev"].enabled = True
        config.rewards["action_smooth"].weight = -0.05
        one, other = make_reach(config, num_envs=64), make_reach(config, num_envs=64)
        maps = one.mirror_maps()

        def mirror(what, values):
            index, sign = maps[what]
            return values[..., index] * sign

        use_targets(
            other,
            start=mirror("actions", one.targets.start),
            target=one.targets.target * torch.tensor([1.0, -1.0, 1.0]),
        )
        running = torch.ones(64, dtype=torch.bool)
        assert torch.allclose(
            mirror("policy", one.get_observations()["policy"]), other.get_observations()["policy"], atol=1e-6
        )
        for action in actions(64, 40).repeat_interleave(2, 0)[:40]:
            _, rewards, dones, extras = one.step(action)
            _, mirrored_rewards, mirrored_dones, mirrored = other.step(mirror("actions", action))
            final = mirror("policy", extras["final_obs"]["policy"])
            assert torch.allclose(final[running], mirrored["final_obs"]["policy"][running], atol=1e-4)
            assert torch.allclose(rewards[running], mirrored_rewards[running], atol=1e-5)
            running &= ~(dones | mirrored_dones)
        assert 20 < running.sum() < 64

    def test_sides_differ(self):
        index, sign = make_reach().mirror_maps()["actions"]
        assert torch.equal(index, torch.arange(JOINTS))
        assert sign.tolist() == [-1, 1, 1, -1, 1, -1]


def test_both_engines_move_the_arm_alike():
    """Over a whole episode and its reset."""
    one, other = (make_reach(num_envs=4, backend=backend) for backend in ("mujoco_c", "mujoco_warp"))
    for action in actions(4, 10).repeat_interleave(10, 0):
        observation, rewards, dones, _ = one.step(action)
        its_observation, its_rewards, its_dones, _ = other.step(action)
        assert torch.allclose(observation["policy"], its_observation["policy"], atol=1e-4)
        assert torch.allclose(rewards, its_rewards, atol=1e-5)
        assert torch.equal(dones, its_dones)
    assert (one.episode.number >= 1).all()
