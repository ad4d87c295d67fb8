"""Navigation: what a step is, what an episode carries, what a reset forgets, and that rooms are independent. What all
tasks have in common is tested in ``tests/navtask/test_contract.py``."""

import math
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from navsetup import clearance, draw, load_nav, load_rooms, rooms_by_hand, use_rooms

from navtask.nav.robot import ROBOT
from navtask.nav.scene import build_model
from navtask.nav.terms import OBSERVATIONS, REWARDS, reward


def actions(num, steps, seed=0):
    """(steps, num, 3); room i's do not depend on ``num``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(steps, 1024, 3, generator=generator)[:, :num] * 2 - 1


def rollout(env, given):
    """Everything that the steps return, copied at once."""
    out = []
    for action in given:
        observation, rewards, dones, extras = env.step(action)
        out.append(
            {
                **{f"obs/{k}": v.clone() for k, v in observation.items()},
                **{f"final/{k}": v.clone() for k, v in extras["final_obs"].items()},
                "reward": rewards.clone(),
                "done": dones.clone(),
                "time_out": extras["time_outs"].clone(),
                "terminated": extras["terminated"].clone(),
                "success": extras["success"].clone(),
            }
        )
    return out


def assert_same(one, other, rows=slice(None), its=None):
    assert len(one) == len(other)
    for k, (a, b) in enumerate(zip(one, other, strict=True)):
        for name in a:
            assert torch.equal(a[name][rows], b[name][rows if its is None else its]), (k, name)


def short(seconds=1.0, **changes):
    """A task whose episodes end soon."""
    return load_nav(episode_length=seconds, **changes)


def towards_goal(env):
    """Straight to the goal at full speed, never turning."""
    x, y = env.sensed.goal_bearing.unbind(-1)
    return torch.stack([x, y, torch.zeros_like(x)], -1)


# -- instants --------------------------------------------------------------------------------------------------------


class TestInstants:
    def test_the_observation_is_of_the_instant_of_the_true_pose(self, make_env):
        """Goal, scan and speed computed anew from where the engine says that the robot is."""
        env = make_env(num_envs=16, privileged=True)
        for action in actions(16, 20):
            observation, *_ = env.step(action)
        q, v = env.physics.qpos.double(), env.physics.qvel.double()
        to_goal = env.rooms.goal - q[:, :2]
        bearing = torch.atan2(to_goal[:, 1], to_goal[:, 0]) - q[:, 2]
        c, s = q[:, 2].cos(), q[:, 2].sin()
        expected = torch.stack(
            [
                to_goal.norm(dim=-1) / env.config.goal_distance_scale,
                bearing.sin(),
                bearing.cos(),
                (c * v[:, 0] + s * v[:, 1]) / ROBOT.v_max,
                (c * v[:, 1] - s * v[:, 0]) / ROBOT.v_max,
                v[:, 2] / ROBOT.omega_max,
            ],
            dim=-1,
        ).float()
        assert torch.allclose(observation["policy"][:, 72:], expected, atol=1e-5)
        for room in range(16):
            free, _ = clearance(env.rooms, env.config.rooms, room, q[room, :2].numpy())
            assert observation["privileged"][room, 0] * env.config.lidar.max_range == pytest.approx(free, abs=1e-4)

    def test_reward_final_observation_and_end_are_of_one_instant(self, make_env):
        """All terms recomputed from the observation before the reset, in every room, whether it ended or not."""
        config = load_nav("dense")
        env = make_env(config, num_envs=128, privileged=True)
        scale, most = config.goal_distance_scale, config.lidar.max_range
        before = env.get_observations()["policy"][:, 72] * scale
        last = torch.zeros(128, 3)
        seen = {"success": 0, "collision": 0}
        for k in range(60):
            action = towards_goal(env) if k % 3 else actions(128, 1, seed=k)[0]
            observation, rewards, dones, extras = env.step(action)
            action = action.clamp(-1, 1)
            final = extras["final_obs"]["policy"]
            distance = final[:, 72] * scale
            collided = extras["final_obs"]["privileged"][:, 73] > 0.5
            arrived = (distance < config.goal_radius) & ~collided
            clear = (distance - config.goal_radius).abs() > 1e-5
            assert torch.equal(extras["terminated"][clear], (collided | arrived)[clear])
            assert torch.equal(extras["success"][clear], arrived[clear])
            expected = (
                15.0 * extras["success"]
                - 12.0 * collided
                + 2.0 * (before - distance)
                + 0.05 * final[:, 74] * final[:, 75].abs().clamp(max=1.0)
                - 0.02
                - 0.08 * ((0.25 - final[:, :72].amin(-1) * most) / 0.25).clamp(0, 1)
                - 0.02 * (action - last).square().sum(-1)
                - 0.05 * (-0.05 - action[:, 0]).clamp(min=0)
            )
            young = env.episode.step < config.rewards["stuck"].params["window"]
            ok = young & ~extras["time_outs"]
            assert torch.allclose(rewards[ok], config.reward_scale * expected[ok], atol=2e-5)
            seen["success"] += int(extras["success"].sum())
            seen["collision"] += int(collided.sum())
            before = observation["policy"][:, 72] * scale
            last = torch.where(dones.unsqueeze(-1), 0.0, action)
        assert min(seen.values()) > 10

    def test_the_stuck_term_looks_back_over_its_window_within_the_episode(self, make_env):
        config = load_nav()
        config.rewards = {"stuck": config.rewards["stuck"]}
        config.rewards["stuck"].weight = 1.0
        env = make_env(config, num_envs=4)
        window = config.rewards["stuck"].params["window"]
        for k in range(1, window + 6):
            _, rewards, *_ = env.step(torch.zeros(4, 3))
            assert (rewards > 0).all() == (k >= window)

    def test_the_observation_after_a_reset_is_of_the_new_episode(self, make_env):
        env = make_env(short(), num_envs=64, privileged=True)
        for action in actions(64, 25):
            observation, _, dones, _ = env.step(action)
            fresh = env.physics.qpos[dones]
            assert torch.equal(fresh, env.rooms.start[dones])
            distance = (env.rooms.goal - env.rooms.start[:, :2]).norm(dim=-1) / env.config.goal_distance_scale
            assert torch.allclose(observation["policy"][dones, 72], distance[dones], atol=1e-6)
            assert (observation["policy"][dones, 75:] == 0).all(), "at rest"
            assert (observation["privileged"][dones, 73] == 0).all(), "not touching"


# -- the drive -------------------------------------------------------------------------------------------------------


def driven_directions(env, action, turned=0.0):
    """(N, 2) mean body-frame velocity over one control step, of a step simulated anew from what the task commands;
    with the commanded direction ``turned`` by so much, rad."""
    model = build_model(env.config.rooms, env.config.physics_dt)
    data = mujoco.MjData(model)
    q, v = env.physics.qpos.double().numpy().copy(), env.physics.qvel.double().numpy().copy()
    caught = []
    step = env.physics.step
    env.physics.step = lambda ctrl, active=None: (caught.append(ctrl.clone()), step(ctrl, active))
    env.step(action)
    env.physics.step = step
    means = []
    c, s = math.cos(turned), math.sin(turned)
    caught[0][:, :2] = caught[0][:, :2] @ torch.tensor([[c, s], [-s, c]])
    for room in range(len(q)):
        data.qpos[:], data.qvel[:], data.ctrl[:] = q[room], v[room], caught[0][room].double().numpy()
        body = []
        for _ in range(round(env.config.control_dt / env.config.physics_dt)):
            before = data.qpos.copy()
            mujoco.mj_step(model, data)
            moved, yaw = data.qpos[:2] - before[:2], (before[2] + data.qpos[2]) / 2
            c, s = math.cos(yaw), math.sin(yaw)
            body.append([c * moved[0] + s * moved[1], c * moved[1] - s * moved[0]])
        means.append(np.mean(body, axis=0))
    return np.array(means)


def off_by(driven, commanded):
    """Angle between them, degrees."""
    angle = np.arctan2(driven[:, 1], driven[:, 0]) - np.arctan2(commanded[:, 1], commanded[:, 0])
    return np.degrees((angle + np.pi) % (2 * np.pi) - np.pi)


class TestBodyFrameDrive:
    NUM = 16

    @pytest.fixture
    def env(self, make_env):
        """Rooms without obstacles, robots in the middle with headings all round."""
        config = load_nav()
        config.rooms = replace(config.rooms, obstacles=[2, 2])
        env = make_env(config, num_envs=self.NUM)
        rooms = rooms_by_hand(config.rooms, start=[0.0, 0.0, 0.0], goal=[4.0, 4.0], num=self.NUM)
        rooms.start[:, 2] = torch.arange(self.NUM) * (2 * math.pi / 7)
        use_rooms(env, rooms)
        return env

    def command(self, turn, speed=0.6):
        angles = torch.arange(self.NUM) * (2 * math.pi / self.NUM)
        return torch.stack([speed * angles.cos(), speed * angles.sin(), torch.full_like(angles, turn)], -1)

    @pytest.mark.parametrize("turn", [-1.0, -0.3, 0.0, 1.0])
    def test_in_steady_turning(self, env, turn):
        command = self.command(turn)
        for _ in range(4):
            env.step(command)
        off = off_by(driven_directions(env, command), command.numpy())
        assert np.abs(off).max() < 1.0

    @pytest.mark.parametrize("turn", [-1.0, 1.0])
    def test_from_rest(self, env, turn):
        command = self.command(turn)
        off = off_by(driven_directions(env, command), command.numpy())
        assert np.abs(off).max() < 1.0

    @pytest.mark.parametrize("turn", [-1.0, 1.0])
    def test_when_the_turn_begins_under_way(self, env, turn):
        for _ in range(3):
            env.step(self.command(0.0))
        command = self.command(turn)
        off = off_by(driven_directions(env, command), command.numpy())
        assert np.abs(off).max() < 1.0

    def test_the_heading_of_the_steps_start_would_be_told(self, env):
        command = self.command(1.0)
        for _ in range(4):
            env.step(command)
        half_a_step = ROBOT.omega_max * env.config.control_dt / 2
        off = off_by(driven_directions(env, command, turned=-half_a_step), command.numpy())
        assert np.abs(off).min() > 4.0

    def test_speed_and_yaw_rate_are_those_commanded(self, env):
        command = self.command(0.5, speed=0.4)
        for _ in range(5):
            env.step(command)
        assert torch.allclose(env.sensed.vel_body.norm(dim=-1), torch.full((self.NUM,), 0.4 * ROBOT.v_max), atol=0.01)
        assert torch.allclose(env.sensed.omega, torch.full((self.NUM,), 0.5 * ROBOT.omega_max), atol=0.01)

    def test_axis_zero_is_forward_and_one_is_left(self, env):
        for axis, index in ((0, 0), (1, 1)):
            env.restart()
            action = torch.zeros(self.NUM, 3)
            action[:, axis] = 0.5
            for _ in range(3):
                env.step(action)
            assert (env.sensed.vel_body[:, index] > 0.7).all()
            assert (env.sensed.vel_body[:, 1 - index].abs() < 0.01).all()


# -- actions ---------------------------------------------------------------------------------------------------------


class TestActions:
    def test_the_pending_action_is_not_in_the_observation(self, make_env):
        """Two copies in one state observe the same, whatever each is about to do."""
        config = load_nav()
        config.observations["action_prev"].enabled = True
        one, other = make_env(config), make_env(config)
        one.step(actions(8, 1)[0])
        other.step(actions(8, 1)[0])
        assert torch.equal(one.get_observations()["policy"], other.get_observations()["policy"])
        first = one.step(torch.ones(8, 3) * 0.5)[0]["policy"]
        second = other.step(-torch.ones(8, 3) * 0.5)[0]["policy"]
        assert torch.equal(first[:, -3:], torch.full((8, 3), 0.5))
        assert torch.equal(second[:, -3:], torch.full((8, 3), -0.5))


# -- resets ----------------------------------------------------------------------------------------------------------


class TestReset:
    def test_layout_start_and_goal_differ_over_rooms_episodes_and_seeds(self, make_env):
        config = short(0.2)
        seen = []
        for seed in range(20):
            env = make_env(config, num_envs=8, seed=seed)
            for _ in range(3):
                seen.append(torch.cat([env.rooms.goal, env.rooms.start, env.rooms.centre[:, 0]], -1).clone())
                env.step(torch.zeros(8, 3))
                env.step(torch.zeros(8, 3))
                assert (env.episode.step == 0).all()
        seen = torch.cat(seen)
        assert len(seen) == 20 * 3 * 8
        for columns in (slice(0, 2), slice(2, 5), slice(5, 7)):
            assert len(torch.unique(seen[:, columns], dim=0)) == len(seen)
        assert (seen.std(0)[:5] > 1.5).all()

    def test_frozen_rooms_are_never_training_rooms(self, make_env):
        training = torch.cat([make_env(num_envs=64, seed=seed).rooms.goal for seed in range(5)])
        frozen = make_env(num_envs=64, stream=1).rooms.goal
        assert not (training[:, None] == frozen[None]).all(-1).any()

    @pytest.mark.parametrize("history", [1, 3])
    def test_nothing_of_an_episode_lives_on_in_the_next(self, make_env, history):
        """Two tasks with different pasts, then the same room: the same from there on, bit for bit."""
        config = short(0.5, history=history)
        config.observations["action_prev"].enabled = True
        config.lidar.noise_std = 0.02
        config.rewards["stuck"].params = {"window": 3, "min_move": 0.3}
        one, other = (make_env(config, num_envs=32, privileged=True) for _ in range(2))
        rooms = draw(config.rooms, 32)
        use_rooms(one, rooms)
        use_rooms(other, rooms)
        for k in range(5):  # the time limit ends every episode at the same step at the latest
            one.step(torch.ones(32, 3) * (-1) ** k)
            other.step(torch.zeros(32, 3))
        together = one.episode.number == other.episode.number
        together &= (one.episode.step == 0) & (other.episode.step == 0)
        assert together.sum() > 16
        assert torch.equal(one.get_observations()["policy"][together], other.get_observations()["policy"][together])
        given = actions(32, 5, seed=9)
        assert_same(rollout(one, given), rollout(other, given), together)

    def test_every_field_of_an_episode_is_reset(self, make_env):
        """Whatever a field held, also what is not a number: after a reset it is as in a task that was never used."""
        config = short(0.2)
        used, fresh = make_env(config), make_env(config)
        for name, tensor in used.episode.tensors().items():
            if name not in ("number", "step", "age"):
                tensor.fill_(7.0)
        used.episode.age.fill_(used.max_episode_length)
        used.step(torch.zeros(8, 3))
        use_rooms(fresh, used.rooms)
        for name, tensor in used.episode.tensors().items():
            if name != "number":
                assert torch.equal(tensor, fresh.episode.tensors()[name]), name


# -- ends ------------------------------------------------------------------------------------------------------------


class TestEnds:
    def one_room(self, make_env, config=None, **room):
        config = config or load_nav()
        env = make_env(config, num_envs=1)
        use_rooms(env, rooms_by_hand(config.rooms, **{"start": [0.0, 0.0, 0.0], "goal": [2.0, 0.0], **room}))
        return env

    def until_done(self, env, action, most=250):
        for k in range(most):
            _, rewards, dones, extras = env.step(torch.tensor([action]))
            if dones.all():
                return k + 1, rewards, extras
        raise AssertionError("the episode never ended")

    def cause(self, env):
        return {k.split("/")[1]: v for k, v in env.pop_statistics().items() if k.startswith("Episode_Termination")}

    def test_success(self, make_env):
        env = self.one_room(make_env)
        _, rewards, extras = self.until_done(env, [1.0, 0.0, 0.0])
        assert extras["success"].all()
        assert extras["terminated"].all()
        assert not extras["time_outs"].any()
        final = extras["final_obs"]["policy"][0, 72] * env.config.goal_distance_scale
        assert env.config.goal_radius - 0.15 <= final < env.config.goal_radius
        assert rewards.item() == pytest.approx(1.5, abs=0.1)
        assert self.cause(env)["success"] == 1.0

    def test_collision(self, make_env):
        env = self.one_room(make_env, cylinders=[(1.0, 0.0, 0.3)])
        steps, rewards, extras = self.until_done(env, [1.0, 0.0, 0.0])
        assert steps == 4
        assert extras["terminated"].all()
        assert not extras["success"].any()
        assert rewards.item() == pytest.approx(-1.2, abs=0.1)
        assert self.cause(env)["collision"] == 1.0

    def test_collision_has_priority_over_success(self, make_env):
        # The goal's surroundings are reached only where the robot touches as well.
        config = load_nav(goal_radius=0.25)
        env = self.one_room(make_env, config, goal=[0.75, 0.0], cylinders=[(1.0, 0.0, 0.3)])
        _, _, extras = self.until_done(env, [1.0, 0.0, 0.0])
        final = extras["final_obs"]["policy"][0, 72] * config.goal_distance_scale
        assert final < config.goal_radius
        assert extras["terminated"].all()
        assert not extras["success"].any()
        assert self.cause(env) == {
            "diverged": 0.0,
            "collision": 1.0,
            "out_of_bounds": 0.0,
            "success": 0.0,
            "timeout": 0.0,
        }

    def test_time_limit(self, make_env):
        env = self.one_room(make_env)
        steps, rewards, extras = self.until_done(env, [0.0, 0.0, 0.0])
        assert steps == round(env.config.episode_length / env.config.control_dt) == 200
        assert extras["time_outs"].all()
        assert not extras["terminated"].any()
        assert rewards.item() == pytest.approx(0.1 * (-4.0 - 0.02 - 0.03), abs=1e-3)
        assert self.cause(env)["timeout"] == 1.0

    def test_success_on_the_last_step_is_no_time_out(self, make_env):
        env = self.one_room(make_env)
        steps, *_ = self.until_done(env, [1.0, 0.0, 0.0])
        config = load_nav(episode_length=steps * load_nav().control_dt)
        env = self.one_room(make_env, config)
        assert env.max_episode_length == steps
        _, _, extras = self.until_done(env, [1.0, 0.0, 0.0])
        assert extras["success"].all()
        assert not extras["time_outs"].any()

    def test_out_of_bounds(self, make_env):
        env = self.one_room(make_env)
        env.physics.reset(torch.tensor([True]), torch.tensor([[5.6, 0.0, 0.0]]))
        _, _, extras = self.until_done(env, [0.0, 0.0, 0.0], most=1)
        assert extras["terminated"].all()
        assert self.cause(env)["out_of_bounds"] == 1.0

    def test_causes_are_exclusive_and_shares_sum_to_one(self, make_env):
        env = make_env(short(3.0), num_envs=128)
        ended = 0
        for k in range(60):
            _, _, dones, extras = env.step(towards_goal(env) if k % 2 else actions(128, 1, seed=k)[0])
            assert torch.equal(dones, extras["terminated"] | extras["time_outs"])
            assert not (extras["terminated"] & extras["time_outs"]).any()
            assert not (extras["success"] & ~extras["terminated"]).any()
            ended += int(dones.sum())
        shares = self.cause(env)
        assert ended > 100
        assert sum(shares.values()) == pytest.approx(1.0)
        assert sum(share > 0 for share in shares.values()) == 3


# -- accounting ------------------------------------------------------------------------------------------------------


class TestAccounting:
    def test_ages_can_be_set_as_the_runner_does(self, make_env):
        env = make_env()
        env.episode_length_buf = torch.randint_like(env.episode_length_buf, high=int(env.max_episode_length))
        env.step(torch.zeros(8, 3))
        assert (env.episode.step == 1).sum() >= 7


# -- independence, exactness -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["open", "dense"])
def test_a_room_does_not_depend_on_how_many_there_are(make_env, preset):
    config = load_nav(preset, episode_length=2.0)
    config.lidar.noise_std = 0.02
    many = rollout(make_env(config, num_envs=64, privileged=True), actions(64, 45))
    few = rollout(make_env(config, num_envs=8, privileged=True), actions(8, 45))
    assert sum(int(step["done"].sum()) for step in few) > 8
    assert_same(many, few, slice(8), slice(None))


@pytest.mark.parametrize("history", [1, 2])
def test_goes_on_exactly_from_a_state(make_env, history):
    config = short(2.0, history=history)
    config.observations["action_prev"].enabled = True
    config.lidar.noise_std = 0.02
    config.lidar.dropout = 0.05
    env = make_env(config, num_envs=32, privileged=True)
    env.spread_ages()
    rollout(env, actions(32, 17))
    state = env.state()
    now = env.get_observations()
    given = actions(32, 30, seed=1)
    expected, statistics = rollout(env, given), env.pop_statistics()
    other = make_env(config, num_envs=32, privileged=True)
    for each in (env, other):
        each.load(state)
        for group in ("policy", "privileged"):
            assert torch.equal(each.get_observations()[group], now[group])
        assert_same(rollout(each, given), expected)
        assert each.pop_statistics() == statistics


def test_returned_tensors_never_change_later(make_env):
    env = make_env(short(0.5), num_envs=16, privileged=True)
    kept, copies = [], []

    def keep(*tensors):
        kept.extend(tensors)
        copies.extend(t.clone() for t in tensors)

    keep(*env.get_observations().values())
    for action in actions(16, 12):
        observation, rewards, dones, extras = env.step(action)
        keep(*observation.values(), *extras["final_obs"].values(), rewards, dones)
        keep(extras["time_outs"], extras["terminated"], extras["success"])
    env.restart()
    assert all(map(torch.equal, kept, copies))
    assert len({t.data_ptr() for t in kept}) == len(kept), "none shares memory with another"


class TestWithoutAutoReset:
    def test_goes_on_exactly_from_a_state(self, make_env):
        env, other = (make_env(short(6.0), num_envs=32, auto_reset=False) for _ in range(2))
        for _ in range(25):
            env.step(towards_goal(env))
        assert 0 < env.active.sum() < 32
        other.load(env.state())
        assert torch.equal(other.active, env.active)
        assert_same(rollout(other, actions(32, 8, seed=1)), rollout(env, actions(32, 8, seed=1)))

    def test_a_room_that_ended_shows_its_last_observation(self, make_env):
        config = short(1.0)
        config.observations["action_prev"].enabled = True
        env = make_env(config, num_envs=16, auto_reset=False)
        for k in range(10):
            last = env.step(actions(16, 1, seed=k)[0])[0]["policy"]
        assert not env.active.any()
        assert torch.equal(env.step(torch.ones(16, 3))[0]["policy"][:, :-3], last[:, :-3])


def test_contacts_agree_with_the_clearance_over_resets(make_env):
    """Obstacles where the lidar says, in the engine as well, also after rooms were drawn anew many times."""
    env = make_env(load_nav("dense", episode_length=1.0), num_envs=64)
    for action in actions(64, 35):
        env.step(action)
    assert env.episode.number.min() >= 3
    rng = np.random.default_rng(0)
    half = np.array(load_rooms("dense").size) / 2 - 0.05
    touched = 0
    for _ in range(20):
        poses = torch.from_numpy(np.column_stack([rng.uniform(-half, half, (64, 2)), rng.uniform(-3, 3, 64)])).float()
        env.physics.reset(torch.ones(64, dtype=torch.bool), poses)
        env._lidar.scan(torch.ones(64, dtype=torch.bool), poses)
        gap = env.truth.clearance - ROBOT.radius
        sure = gap.abs() > 1e-5
        assert torch.equal(env.physics.touching[sure], (gap < 0)[sure])
        touched += int((gap < 0).sum())
    assert 200 < touched < 1100


class TestTheTestsCanFail:
    """Faults planted into the task are told by the checks above."""

    def test_a_late_reward(self, make_env, monkeypatch):
        from navtask.nav.env import NavEnv

        original = NavEnv._reward_context

        def late(self, cause):
            context = original(self, cause)
            lagged = getattr(self, "_lagged", None)
            self._lagged = context.sensed.goal_distance.clone()
            return replace(
                context, sensed=replace(context.sensed, goal_distance=self._lagged if lagged is None else lagged)
            )

        monkeypatch.setattr(NavEnv, "_reward_context", late)
        with pytest.raises(AssertionError):
            TestInstants().test_reward_final_observation_and_end_are_of_one_instant(make_env)

    def test_an_action_that_lives_on(self, make_env, monkeypatch):
        from navtask.nav.env import NavEnv

        original = NavEnv._reset

        kept = {}
        step = NavEnv.step

        def keep(self, actions):
            kept[id(self)] = actions.clamp(-1, 1)
            return step(self, actions)

        def leak(self, mask):
            original(self, mask)
            if id(self) in kept:
                self.episode.action.copy_(kept[id(self)])

        monkeypatch.setattr(NavEnv, "step", keep)
        monkeypatch.setattr(NavEnv, "_reset", leak)
        with pytest.raises(AssertionError):
            TestReset().test_nothing_of_an_episode_lives_on_in_the_next(make_env, 1)

    def test_views_into_live_buffers(self, make_env, monkeypatch):
        from navtask.nav.env import NavEnv

        original = NavEnv._observe

        def views(self):
            observation = original(self)
            observation["policy"] = self.episode.frames.flatten(1)
            return observation

        monkeypatch.setattr(NavEnv, "_observe", views)
        with pytest.raises(AssertionError):
            test_returned_tensors_never_change_later(make_env)

    def test_truncation_as_failure(self, make_env, monkeypatch):
        from navtask.contract import VecTask

        step = VecTask.step

        def confused(self, actions):
            observation, rewards, dones, extras = step(self, actions)
            extras["terminated"] = dones.clone()
            extras["time_outs"] = torch.zeros_like(dones)
            return observation, rewards, dones, extras

        monkeypatch.setattr(VecTask, "step", confused)
        with pytest.raises(AssertionError):
            TestEnds().test_time_limit(make_env)

    def test_a_goal_that_never_moves(self, make_env, monkeypatch):
        from navtask.nav.scene import RoomDrawer

        draw_rooms = RoomDrawer.draw
        monkeypatch.setattr(
            RoomDrawer, "draw", lambda self, mask, episode: draw_rooms(self, mask, torch.zeros_like(episode))
        )
        with pytest.raises(AssertionError):
            TestReset().test_layout_start_and_goal_differ_over_rooms_episodes_and_seeds(make_env)


def test_a_term_that_gives_nan_in_one_room_leaves_the_others_alone(make_env):
    @reward()
    def broken_in_room_two(context):
        values = torch.zeros(len(context.step))
        values[2] = math.nan
        return values

    try:
        config = short(0.5)
        config.rewards["broken_in_room_two"] = type(config.rewards["goal"])(weight=1.0)
        env = make_env(config)
        for action in actions(8, 10):
            _, rewards, *_ = env.step(action)
            assert torch.isfinite(rewards[torch.arange(8) != 2]).all()
    finally:
        del REWARDS._terms["broken_in_room_two"]


def test_observation_terms_are_all_declared_for_mirroring():
    for term in OBSERVATIONS.values():
        index, sign = term.mirror_map(term.width_for(load_nav()))
        assert torch.equal(index[index], torch.arange(len(index)))
        assert set(sign.tolist()) <= {1.0, -1.0}
