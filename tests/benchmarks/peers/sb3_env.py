"""The task with Stable-Baselines3: a Gymnasium environment over MuJoCo, `mj_multiRay` for the scan, one environment in
each process of a `SubprocVecEnv`.

Obstacles are mocap bodies, which is how MuJoCo has static things moved between episodes.
"""

import argparse
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import room
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv
from turns import Turns

ROBOT = Path(__file__).parents[3] / "navtask" / "nav" / "robot.xml"


def build_model() -> mujoco.MjModel:
    """The robot in a walled room with its obstacles."""
    spec = mujoco.MjSpec.from_file(str(ROBOT))
    spec.option.timestep = room.PHYSICS_DT
    passive = {"contype": 0, "conaffinity": 1}
    z = room.OBSTACLE_HALF_HEIGHT
    for (x, y), half in room.WALLS:
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, pos=(x, y, z), size=(*half, z), **passive)
    for slot, (x, y) in enumerate(room.HALF):
        body = spec.worldbody.add_body(mocap=True, pos=(0, 0, z))
        if slot < room.CYLINDERS:
            body.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=(x, z, 0), **passive)
        else:
            body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=(x, y, z), **passive)
    return spec.compile()


class RoomEnv(gymnasium.Env):
    """One room."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (room.BEAMS + 6,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self._model = build_model()
        self._data = mujoco.MjData(self._model)
        self._robot = self._model.body("robot").id
        self._episode = room.Episode(seed=0)
        self._beams = np.zeros((room.BEAMS, 3))
        self._scan = np.zeros(room.BEAMS)
        self._hit = np.zeros(room.BEAMS, np.int32)

    def reset(self, *, seed=None, options=None):
        """A new room."""
        if seed is not None:
            self._episode = room.Episode(seed)
        layout, data = self._episode.begin(), self._data
        mujoco.mj_resetData(self._model, data)
        data.mocap_pos[:, :2] = layout.centres
        half_yaw = np.array(layout.yaws) / 2
        data.mocap_quat[:, 0], data.mocap_quat[:, 3] = np.cos(half_yaw), np.sin(half_yaw)
        data.qpos[:] = layout.start
        mujoco.mj_forward(self._model, data)
        return self._observe(), {}

    def step(self, action):
        """One control step."""
        data = self._data
        action = np.clip(action, -1.0, 1.0).tolist()
        data.ctrl[:] = room.world_command(action, data.qpos[2])
        mujoco.mj_step(self._model, data, room.SUBSTEPS)
        observation = self._observe()
        x, y, _ = data.qpos.tolist()
        reward, terminated, truncated = self._episode.judge(observation, (x, y), action, data.ncon > 0)
        return observation, reward, terminated, truncated, {}

    def check(self, steps: int) -> None:
        """Scans and touches are those of the room."""
        rng = np.random.default_rng(0)
        ended = True
        for _ in range(steps):
            if ended:
                self.reset()
                room.check_scan(self._scan, self._episode.layout, self._data.qpos)
            _, _, terminated, truncated, _ = self.step(rng.uniform(-1.0, 1.0, 3))
            room.check_touch(self._scan.min(), self._data.ncon > 0)
            ended = terminated or truncated

    def _observe(self) -> np.ndarray:
        data = self._data
        x, y, yaw = data.qpos.tolist()
        self._beams[:, 0], self._beams[:, 1] = np.cos(yaw + room.ANGLES), np.sin(yaw + room.ANGLES)
        mujoco.mj_multiRay(
            self._model,
            data,
            np.array((x, y, room.HEIGHT)),
            self._beams.reshape(-1),
            None,
            True,
            self._robot,
            self._hit,
            self._scan,
            None,
            room.BEAMS,
            room.MAX_RANGE,
        )
        self._scan[(self._hit < 0) | (self._scan > room.MAX_RANGE)] = room.MAX_RANGE
        return self._episode.observe((x, y, yaw), tuple(data.qvel.tolist()), self._scan)


def main() -> None:
    """Be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=16)
    processes = parser.parse_args().processes
    RoomEnv().check(2000)
    envs = make_vec_env(RoomEnv, processes, seed=0, vec_env_cls=SubprocVecEnv)
    envs.reset()
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (256, processes, 3)).astype(np.float32)
    for action in actions:
        envs.step(action)
    turns, i = Turns(), 0
    while turns.go_on(processes):
        envs.step(actions[i % len(actions)])
        i += 1
    envs.close()


if __name__ == "__main__":
    main()
