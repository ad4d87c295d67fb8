"""The arm: where its tool is, how its joints answer, and what it can reach."""

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from reachsetup import PRESETS, load_reach, load_targets, make_reach

from navtask.reach.arm import JOINTS, Chain, build_model, inverse_kinematics, read_arm, tool_velocity, vec6

ARM = read_arm()


def engine_tool(postures):
    """(N, 3) where the engine has the tool, m, and the tool's Jacobian (N, 3, 6)."""
    model = build_model(0.004)
    data = mujoco.MjData(model)
    places, jacobians = [], []
    for q in np.asarray(postures, dtype=float):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        jacobian = np.zeros((3, JOINTS))
        mujoco.mj_jacSite(model, data, jacobian, None, model.site("tool").id)
        places.append(data.site_xpos[model.site("tool").id].copy())
        jacobians.append(jacobian)
    return np.array(places), np.array(jacobians)


def postures(num, seed=0):
    """Anywhere within the joints' limits."""
    return np.random.default_rng(seed).uniform(ARM.lower, ARM.upper, (num, JOINTS))


@wp.kernel
def _jacobians(chain: Chain, q: wp.array(dtype=vec6), out: wp.array2d(dtype=wp.vec3)):
    room, joint = wp.tid()
    out[room, joint] = tool_velocity(chain, q[room], joint)


class TestKinematics:
    def test_the_tool_is_where_the_engine_has_it(self):
        env = make_reach(num_envs=256)
        q = torch.from_numpy(postures(256)).float()
        env.physics.reset(torch.ones(256, dtype=torch.bool), q)
        env._sense(torch.ones(256, dtype=torch.bool))
        expected, _ = engine_tool(q.double())
        assert np.abs(env.sensed.tool.numpy() - expected).max() < 1e-6
        assert np.ptp(expected, axis=0).min() > 1.0, "all over the place"

    def test_the_jacobian_is_the_engines(self):
        q = torch.from_numpy(postures(64, seed=1)).float()
        out = torch.zeros(64, JOINTS, 3)
        wp.init()
        arrays = wp.from_torch(q, dtype=vec6), wp.from_torch(out, dtype=wp.vec3)
        wp.launch(_jacobians, dim=(64, JOINTS), inputs=[ARM.chain(), *arrays], device="cpu")
        _, expected = engine_tool(q.double())
        assert np.abs(out.numpy().transpose(0, 2, 1) - expected).max() < 1e-6

    def test_every_joint_moves_the_tool_at_home(self):
        _, jacobian = engine_tool([ARM.home])
        assert (np.linalg.norm(jacobian[0], axis=0) > 0.03).all()

    def test_no_posture_brings_the_tool_further_from_the_shoulder_than_the_reach(self):
        places, _ = engine_tool(postures(2000, seed=2))
        distance = np.linalg.norm(places - ARM.shoulder, axis=1)
        assert distance.max() < ARM.reach
        assert distance.max() > 0.95 * ARM.reach


class TestReachability:
    @pytest.mark.parametrize("preset", PRESETS)
    def test_every_target_can_be_reached_from_the_home_posture(self, preset):
        """Sampled all over the box, its corners included; judged by the engine."""
        targets = load_targets(preset)
        corners = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
        unit = np.vstack([corners, np.random.default_rng(0).uniform(-1, 1, (2000, 3))])
        points = np.array(targets.centre) + unit * targets.half_size
        found, miss = inverse_kinematics(torch.from_numpy(points).float())
        tool, _ = engine_tool(found)
        assert np.linalg.norm(tool - points, axis=1).max() < 1e-4
        assert miss.max() < 1e-4
        assert (found.numpy() >= ARM.lower - 1e-6).all()
        assert (found.numpy() <= ARM.upper + 1e-6).all()

    def test_what_is_too_far_is_missed_by_at_least_as_much(self):
        targets = torch.tensor([[1.0, 0.0, 0.3], [0.4, 0.0, 0.35]])
        _, miss = inverse_kinematics(targets)
        assert miss[0] > np.linalg.norm(targets[0].numpy() - ARM.shoulder) - ARM.reach > 0.2
        assert miss[1] < 1e-4


class TestServos:
    def test_each_joint_takes_on_the_speed_that_it_is_told(self):
        """One joint for each room, at half speed to either side."""
        env = make_reach(num_envs=2 * JOINTS)
        action = torch.cat([torch.eye(JOINTS), -torch.eye(JOINTS)]) * 0.5
        for _ in range(10):
            env.step(action)
        assert torch.allclose(env.sensed.joint_vel, action * ARM.v_max, atol=0.03)

    def test_and_most_of_it_within_one_step(self):
        env = make_reach(num_envs=2)
        action = torch.ones(2, JOINTS) * torch.tensor([[1.0], [-1.0]])
        env.step(action)
        assert (env.sensed.joint_vel / (action * ARM.v_max) > 0.6).all()

    def test_none_reaches_its_force_limit_whatever_the_commands(self):
        model = build_model(load_reach().physics_dt)
        data = mujoco.MjData(model)
        data.qpos[:] = ARM.home
        rng = np.random.default_rng(0)
        share = 0.0
        for _ in range(500):
            data.ctrl[:] = rng.choice([-ARM.v_max, ARM.v_max], JOINTS)
            for _ in range(5):
                mujoco.mj_step(model, data)
                share = max(share, float(np.abs(data.actuator_force / model.actuator_forcerange[:, 1]).max()))
        assert 0.5 < share < 1.0

    def test_joints_stop_at_their_limits(self):
        env = make_reach(load_reach(episode_length=20.0), num_envs=2)
        action = torch.ones(2, JOINTS) * torch.tensor([[1.0], [-1.0]])
        for _ in range(400):
            env.step(action)
        q = env.sensed.joint_pos.numpy()
        assert np.abs(q[0] - ARM.upper).max() < 0.02
        assert np.abs(q[1] - ARM.lower).max() < 0.02
        assert env.sensed.joint_vel.abs().max() < 0.01
