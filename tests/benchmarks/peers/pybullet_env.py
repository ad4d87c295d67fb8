"""The task with PyBullet: four processes, each with its share of the rooms, a physics client for every room and
`rayTestBatch` for its scan.

The robot is that of the task, a disc on two slides and a hinge, each driven by a servo of limited force.
"""

import argparse
import multiprocessing
from multiprocessing.connection import Connection

import numpy as np
import pybullet
import room
from pybullet_utils.bullet_client import BulletClient
from turns import Turns

ROBOT_GROUP, OBSTACLE_GROUP = 1, 2
JOINTS = (
    (pybullet.JOINT_PRISMATIC, (1, 0, 0)),
    (pybullet.JOINT_PRISMATIC, (0, 1, 0)),
    (pybullet.JOINT_REVOLUTE, (0, 0, 1)),
)
AXES, FORCES = range(len(JOINTS)), (400.0, 400.0, 20.0)
CARRIER_MASS = 1e-3  # of the links between the joints, which in MuJoCo weigh nothing, kg
CONTACT_DISTANCE = 8  # its place in what getContactPoints returns; near misses are in there as well


class RoomEnv:
    """One room."""

    def __init__(self, seed: int) -> None:
        self._episode = room.Episode(seed)
        self._client = client = BulletClient(pybullet.DIRECT)
        client.setTimeStep(room.PHYSICS_DT)
        z = room.OBSTACLE_HALF_HEIGHT
        for (x, y), half in room.WALLS:
            shape = client.createCollisionShape(pybullet.GEOM_BOX, halfExtents=(*half, z))
            self._add_passive(shape, (x, y, z))
        self._obstacles = []
        for slot, (x, y) in enumerate(room.HALF.tolist()):
            if slot < room.CYLINDERS:
                shape = client.createCollisionShape(pybullet.GEOM_CYLINDER, radius=x, height=2 * z)
            else:
                shape = client.createCollisionShape(pybullet.GEOM_BOX, halfExtents=(x, y, z))
            self._obstacles.append(self._add_passive(shape, (0, 0, z)))
        self._robot = self._add_robot()
        # In the robot's frame, which they are given relative to.
        beam = np.stack([np.cos(room.ANGLES), np.sin(room.ANGLES), np.zeros(room.BEAMS)], 1)
        self._from, self._to = (0 * beam).tolist(), (room.MAX_RANGE * beam).tolist()
        self.reset()

    def _add_passive(self, shape: int, place: tuple[float, float, float]) -> int:
        body = self._client.createMultiBody(0, shape, basePosition=place)
        self._client.setCollisionFilterGroupMask(body, -1, OBSTACLE_GROUP, ROBOT_GROUP)
        return body

    def _add_robot(self) -> int:
        client, disc = self._client, len(JOINTS) - 1
        shape = client.createCollisionShape(pybullet.GEOM_CYLINDER, radius=room.RADIUS, height=2 * room.HEIGHT)
        here, straight = [(0, 0, 0)] * len(JOINTS), [(0, 0, 0, 1)] * len(JOINTS)
        robot = client.createMultiBody(
            baseMass=0,
            basePosition=(0, 0, room.HEIGHT),
            linkMasses=[CARRIER_MASS] * disc + [1.0],
            linkCollisionShapeIndices=[-1] * disc + [shape],
            linkVisualShapeIndices=[-1] * len(JOINTS),
            linkPositions=here,
            linkOrientations=straight,
            linkInertialFramePositions=here,
            linkInertialFrameOrientations=straight,
            linkParentIndices=range(len(JOINTS)),
            linkJointTypes=[kind for kind, _ in JOINTS],
            linkJointAxis=[axis for _, axis in JOINTS],
        )
        for link in range(-1, len(JOINTS)):
            client.changeDynamics(robot, link, linearDamping=0, angularDamping=0, jointDamping=0)
            client.setCollisionFilterGroupMask(robot, link, ROBOT_GROUP, OBSTACLE_GROUP)
        return robot

    def reset(self) -> np.ndarray:
        """A new room."""
        layout, client = self._episode.begin(), self._client
        for body, (x, y), yaw in zip(self._obstacles, layout.centres, layout.yaws, strict=True):
            turned = (0, 0, np.sin(yaw / 2), np.cos(yaw / 2))
            client.resetBasePositionAndOrientation(body, (x, y, room.OBSTACLE_HALF_HEIGHT), turned)
        client.resetJointStatesMultiDof(self._robot, AXES, [[place] for place in layout.start], [[0.0]] * len(AXES))
        self._pose = layout.start
        return self._observe((0.0, 0.0, 0.0))

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """One control step; a room that ends is replaced, and what is observed is the new one."""
        client, commands = self._client, np.clip(action, -1.0, 1.0).tolist()
        wanted = room.world_command(commands, self._pose[2])
        client.setJointMotorControlArray(
            self._robot, AXES, pybullet.VELOCITY_CONTROL, targetVelocities=wanted, forces=FORCES
        )
        for _ in range(room.SUBSTEPS):
            client.stepSimulation()
        states = client.getJointStates(self._robot, AXES)
        self._pose = (x, y, _) = tuple(state[0] for state in states)
        observation = self._observe(tuple(state[1] for state in states))
        self.touching = any(point[CONTACT_DISTANCE] <= 0 for point in client.getContactPoints(self._robot))
        reward, terminated, truncated = self._episode.judge(observation, (x, y), commands, self.touching)
        if terminated or truncated:
            observation = self.reset()
        return observation, reward, terminated or truncated

    def _observe(self, velocity: tuple[float, float, float]) -> np.ndarray:
        hits = self._client.rayTestBatch(
            self._from,
            self._to,
            parentObjectUniqueId=self._robot,
            parentLinkIndex=AXES[-1],
            collisionFilterMask=OBSTACLE_GROUP,
        )
        self.scan = room.MAX_RANGE * np.array([hit[2] for hit in hits])
        return self._episode.observe(self._pose, velocity, self.scan)

    def check(self, steps: int) -> None:
        """Scans and touches are those of the room."""
        rng = np.random.default_rng(0)
        for _ in range(steps):
            _, _, ended = self.step(rng.uniform(-1.0, 1.0, 3))
            if ended:
                room.check_scan(self.scan, self._episode.layout, self._pose)
            else:
                room.check_touch(self.scan.min(), self.touching)


def work(pipe: Connection, rooms: range) -> None:
    """A process: step these rooms whenever actions come in, until the pipe closes."""
    envs = [RoomEnv(seed) for seed in rooms]
    while (actions := pipe.recv()) is not None:
        done = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        observations, rewards, ended = zip(*done, strict=True)
        pipe.send((np.stack(observations), np.array(rewards), np.array(ended)))


def main() -> None:
    """Be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", type=int, default=256)
    parser.add_argument("--processes", type=int, default=4)
    arguments = parser.parse_args()
    RoomEnv(seed=0).check(2000)
    share = arguments.rooms // arguments.processes
    pipes, processes = [], []
    for number in range(arguments.processes):
        ours, theirs = multiprocessing.Pipe()
        rooms = range(number * share, (number + 1) * share)
        processes.append(multiprocessing.Process(target=work, args=(theirs, rooms), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (32, arguments.processes, share, 3))

    def step(actions: np.ndarray) -> tuple[np.ndarray, ...]:
        for pipe, own in zip(pipes, actions, strict=True):
            pipe.send(own)
        return tuple(np.concatenate(parts) for parts in zip(*(pipe.recv() for pipe in pipes), strict=True))

    for action in actions:
        step(action)
    turns, i = Turns(), 0
    while turns.go_on(share * arguments.processes):
        step(actions[i % len(actions)])
        i += 1
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()


if __name__ == "__main__":
    main()
