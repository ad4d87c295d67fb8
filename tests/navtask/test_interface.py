"""What a policy is fed on a robot is what it was fed in training: from known states, not from readings."""

import json
import math
import re

import numpy as np
import pytest
import torch
from navsetup import load_nav, rooms_by_hand, use_rooms
from taskcases import CASES

from navtask.numpy_policy import Controller


def write_policy(path, interface, told=True):
    """A ``policy.npz`` of one layer with random weights, whose actions go beyond [-1, 1] now and then."""
    rng = np.random.default_rng(0)
    width, actions = interface["observation"]["width"], len(interface["action"]["axes"])
    arrays = {
        "mean": np.zeros(width, np.float32),
        "std": np.ones(width, np.float32),
        "weight_0": rng.normal(size=(actions, width)).astype(np.float32) / 4,
        "bias_0": np.zeros(actions, np.float32),
        "activation": "elu",
        "output": "mean",
    }
    np.savez(path, **arrays, **({"interface": json.dumps(interface)} if told else {}))
    return path


def measure(env, room):
    """What a robot in the state of a room would measure, in SI units, by the definition of each input's meaning."""
    qpos, qvel = env.physics.qpos[room].double().numpy(), env.physics.qvel[room].double().numpy()
    if env.config.name == "reach":
        to_target = (env.targets.target - env.sensed.tool)[room].double().numpy()
        return {"joint_pos": qpos, "joint_vel": qvel, "to_target": to_target}
    c, s = math.cos(qpos[2]), math.sin(qpos[2])
    to_body = np.array([[c, s], [-s, c]])
    scan = env.sensed.scan[room].double().numpy()
    return {
        "scan": np.where(scan < env.config.lidar.max_range, scan, np.inf),
        "goal": to_body @ (env.rooms.goal[room].double().numpy() - qpos[:2]),
        "vel_body": to_body @ qvel[:2],
        "omega": qvel[2],
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_controller_sees_what_the_environment_shows(case, tmp_path):
    """With the last action among the terms, a noisy scan and a history, over steps and after a reset."""
    config = case.config()
    if case.name == "nav":
        config.history = 3
    env = case.make(config, num_envs=4, auto_reset=False)
    interface = env.interface()
    assert interface["observation"]["width"] == env.get_observations()["policy"].shape[1]
    controllers = [Controller(write_policy(tmp_path / "policy.npz", interface)) for _ in range(4)]
    scale = np.array([axis["scale"] for axis in interface["action"]["axes"]])
    compared = clipped = 0
    for _ in range(2):
        for _ in range(5):
            shown = env.get_observations()["policy"].numpy()
            actions = torch.zeros(4, env.num_actions)
            for room in env.active.nonzero().flatten().tolist():
                commands = controllers[room](**measure(env, room))
                np.testing.assert_allclose(controllers[room].observation, shown[room], atol=1e-6, rtol=0)
                actions[room] = torch.from_numpy(commands / scale)
                compared += 1
            clipped += int((actions.abs() == 1).sum())
            env.step(actions)
        env.restart()
        for controller in controllers:
            controller.reset()
    assert compared > 20
    assert clipped > 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_is_the_speed_that_is_driven(case):
    env = case.make(num_envs=1)
    axes = env.interface()["action"]["axes"]
    for axis, told in enumerate(axes):
        env.restart()
        action = torch.zeros(1, len(axes))
        action[0, axis] = 0.3
        for _ in range(4):
            env.step(action)
        measured = measure(env, 0)
        speeds = measured["joint_vel"] if case.name == "reach" else [*measured["vel_body"], measured["omega"]]
        assert speeds[axis] == pytest.approx(0.3 * told["scale"], rel=0.05), told["name"]


def test_a_robot_at_a_known_place_reads_as_the_interface_says(make_env, tmp_path):
    """In an empty room of 10 m, facing +y from (2, 1); its goal is 2 m ahead and 1 m to the left."""
    config = load_nav()
    env = make_env(config, num_envs=1)
    use_rooms(env, rooms_by_hand(config.rooms, start=(2.0, 1.0, math.pi / 2), goal=(1.0, 3.0)))
    values = env.get_observations()["policy"][0].tolist()
    by_name = {
        term["name"]: values[term["start"] : term["start"] + term["width"]]
        for term in env.interface()["observation"]["terms"]
    }
    assert list(by_name) == ["lidar", "goal_polar", "vel_body", "omega"]
    # The walls are 4 m ahead, 7 m to the left, 6 m behind and 3 m to the right; a beam sees 6 m.
    assert [by_name["lidar"][beam] for beam in (0, 18, 36, 54)] == pytest.approx([4 / 6, 1.0, 1.0, 0.5], abs=1e-6)
    assert by_name["goal_polar"] == pytest.approx([math.sqrt(5) / 5, 1 / math.sqrt(5), 2 / math.sqrt(5)], abs=1e-6)
    assert by_name["vel_body"] + by_name["omega"] == [0.0, 0.0, 0.0]
    lidar = env.interface()["observation"]["terms"][0]
    assert (lidar["angle_min"], lidar["angle_increment"]) == (0.0, pytest.approx(math.radians(5)))
    assert [(a["name"], a["unit"], a["scale"]) for a in env.interface()["action"]["axes"]] == [
        ("vx", "m/s", 1.5),
        ("vy", "m/s", 1.5),
        ("wz", "rad/s", 2.0),
    ]


class TestMistakes:
    MEASURED = {"scan": np.full(72, 3.0), "goal": (1.0, 0.0), "vel_body": (0.0, 0.0), "omega": 0.0}  # noqa: RUF012

    @pytest.fixture
    def controller(self, make_env, tmp_path):
        return Controller(write_policy(tmp_path / "policy.npz", make_env(num_envs=1).interface()))

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            ({"vel": 1.0}, r"^vel is unknown \(nearest: vel_body\); expected scan \(72, m\), goal \(2, m\), "),
            ({"goal": None, "speed": 1.0}, "^speed is unknown, goal is missing; expected scan"),
            ({"scan": np.zeros(72)}, r"scan is not above 0 \(72 of 72 ranges, the first at 0: 0\); .* must be inf$"),
            ({"scan": [3.0] * 70 + [-1.0, 0.0]}, r"\(2 of 72 ranges, the first at 70: -1\)"),
            ({"scan": np.ones(36)}, r"scan has shape \(36,\), expected \(72,\)"),
            ({"goal": (math.nan, 0.0)}, "goal is not finite"),
        ],
    )
    def test_is_told(self, controller, wrong, told):
        measured = {name: value for name, value in (self.MEASURED | wrong).items() if value is not None}
        with pytest.raises(ValueError, match=told):
            controller(**measured)

    def test_a_scan_may_lack_returns(self, controller):
        scan = np.full(72, 3.0)
        scan[:4] = math.inf, math.nan, 99.0, -math.inf
        assert controller.observe(**self.MEASURED | {"scan": scan})[:5] == pytest.approx([1, 1, 1, 0, 0.5])

    def test_a_file_that_does_not_say_what_its_observations_are(self, make_env, tmp_path):
        old = write_policy(tmp_path / "old.npz", make_env(num_envs=1).interface(), told=False)
        with pytest.raises(ValueError, match=r"old.npz doesn't say what its observations are"):
            Controller(old)

    def test_a_file_that_is_no_policy(self, make_env, tmp_path):
        whole = write_policy(tmp_path / "whole.npz", make_env(num_envs=1).interface()).read_bytes()
        with pytest.raises(FileNotFoundError, match=r"policy\.npz"):
            Controller(tmp_path / "policy.npz")
        for name, content in {
            "policy.onnx": b"\x08\x08\x12\x07pytorch",
            "notes.txt": b"a text\n",
            "empty.npz": b"",
            "truncated.npz": whole[: len(whole) // 2],
            "damaged.npz": whole.replace("elu".encode("utf-32-le"), "elx".encode("utf-32-le")),
        }.items():
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ValueError, match=rf"{re.escape(name)} is not a policy\.npz, or not a whole one"):
                Controller(tmp_path / name)
        np.savez(tmp_path / "other.npz", weight_0=np.ones(3))
        with pytest.raises(ValueError, match=r"other\.npz is not a policy\.npz, or not a whole one: .*mean"):
            Controller(tmp_path / "other.npz")
