"""The task with mjlab: its manager-based environment with 256 worlds of MuJoCo Warp, device cpu.

mjlab is made for GPUs; its CPU device is the one that can be compared here. Obstacles are geoms whose place is a model
field of each world's own, mjlab's way to randomise a scene; the scan is its ray-cast sensor with rays in a circle.
"""

import argparse
import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import room
import torch
from mjlab.actuator.xml_actuator import XmlActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.mdp import action_rate_l2, time_out
from mjlab.managers.action_manager import ActionTerm, ActionTermCfg
from mjlab.managers.event_manager import EventTermCfg, requires_model_fields
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sensor import ContactMatch, ContactSensorCfg, ObjRef, RayCastSensorCfg
from mjlab.sim import MujocoCfg, SimulationCfg
from turns import Turns

ROBOT = Path(__file__).parents[3] / "navtask" / "nav" / "robot.xml"


# -- the scene --------------------------------------------------------------------------------------------------------


def robot_spec() -> mujoco.MjSpec:
    return mujoco.MjSpec.from_file(str(ROBOT))


def room_spec() -> mujoco.MjSpec:
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="room")
    passive = {"contype": 0, "conaffinity": 1}
    z = room.OBSTACLE_HALF_HEIGHT
    apart = room.Layout(np.random.default_rng(0)).centres
    for slot, (x, y) in enumerate(room.HALF):
        if slot < room.CYLINDERS:
            kind, size = mujoco.mjtGeom.mjGEOM_CYLINDER, (x, z, 0)
        else:
            kind, size = mujoco.mjtGeom.mjGEOM_BOX, (x, y, z)
        body.add_geom(name=f"obstacle_{slot}", type=kind, size=size, pos=(*apart[slot], z), **passive)
    for number, ((x, y), half) in enumerate(room.WALLS):
        kind, size = mujoco.mjtGeom.mjGEOM_BOX, (*half, z)
        body.add_geom(name=f"wall_{number}", type=kind, size=size, pos=(x, y, z), **passive)
    return spec


@dataclass
class CirclePatternCfg:
    """Rays evenly over 360 degrees, at the scanner's height."""

    def generate_rays(self, mj_model: mujoco.MjModel | None, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.tensor(room.ANGLES, dtype=torch.float32, device=device)
        directions = torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)], 1)
        return torch.tensor([0.0, 0.0, room.HEIGHT], device=device).expand_as(directions), directions


@requires_model_fields("geom_pos", "geom_quat")
class NewRoom:
    """On reset: obstacles, start and goal. The goal's place is kept as ``env.goal``."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        env.goal = torch.zeros(env.num_envs, 2, device=env.device)
        env.layouts = [None] * env.num_envs
        self._rng = np.random.default_rng(0)
        self._geoms = env.scene["room"].indexing.geom_ids[: room.OBSTACLES]

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
        layouts = [room.Layout(self._rng) for _ in env_ids]
        for env_id, layout in zip(env_ids.tolist(), layouts, strict=True):
            env.layouts[env_id] = layout
        model, rows = env.sim.model, env_ids[:, None]
        centres = torch.tensor([layout.centres for layout in layouts])
        half_yaws = torch.tensor([layout.yaws for layout in layouts]) / 2
        none = torch.zeros_like(half_yaws)
        height = torch.full_like(half_yaws, room.OBSTACLE_HALF_HEIGHT)
        model.geom_pos[rows, self._geoms] = torch.cat([centres, height[..., None]], -1)
        model.geom_quat[rows, self._geoms] = torch.stack([half_yaws.cos(), none, none, half_yaws.sin()], -1)
        start = torch.tensor([layout.start for layout in layouts])
        env.scene["robot"].write_joint_state_to_sim(start, torch.zeros_like(start), env_ids=env_ids)
        env.goal[env_ids] = torch.tensor([layout.goal for layout in layouts])


# -- actions and observations -----------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class BodyVelocityCfg(ActionTermCfg):
    def build(self, env: ManagerBasedRlEnv) -> "BodyVelocity":
        return BodyVelocity(self, env)


class BodyVelocity(ActionTerm):
    """Body-frame velocities, turned into the world frame at the control step's mean heading."""

    action_dim = 3

    def __init__(self, cfg: BodyVelocityCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(cfg, env)
        self._limits = torch.tensor([room.V_MAX, room.V_MAX, room.OMEGA_MAX])
        self._raw = torch.zeros(env.num_envs, 3)
        self._command = torch.zeros(env.num_envs, 3)

    @property
    def raw_action(self) -> torch.Tensor:
        return self._raw

    def process_actions(self, actions: torch.Tensor) -> None:
        self._raw[:] = actions
        v, u, omega = (actions.clamp(-1.0, 1.0) * self._limits).unbind(-1)
        heading = self._entity.data.joint_pos[:, 2] + omega * room.CONTROL_DT / 2
        c, s = heading.cos(), heading.sin()
        self._command = torch.stack([c * v - s * u, s * v + c * u, omega], -1)

    def apply_actions(self) -> None:
        self._entity.set_joint_velocity_target(self._command)

    def reset(self, env_ids: torch.Tensor | slice | None = None) -> None:
        self._raw[env_ids] = 0.0


def place(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.scene["robot"].data.joint_pos[:, :2]


def goal_distance(env: ManagerBasedRlEnv) -> torch.Tensor:
    return (env.goal - place(env)).norm(dim=-1)


def goal_bearing(env: ManagerBasedRlEnv) -> torch.Tensor:
    to_goal = env.goal - place(env)
    return torch.atan2(to_goal[:, 1], to_goal[:, 0]) - env.scene["robot"].data.joint_pos[:, 2]


def ranges(env: ManagerBasedRlEnv) -> torch.Tensor:
    distances = env.scene["lidar"].data.distances
    return torch.where(distances < 0, room.MAX_RANGE, distances)


def touching(env: ManagerBasedRlEnv) -> torch.Tensor:
    return (env.scene["touch"].data.found > 0).any(-1)


def reached(env: ManagerBasedRlEnv) -> torch.Tensor:
    return (goal_distance(env) < room.GOAL_RADIUS) & ~touching(env)


def lidar(env: ManagerBasedRlEnv) -> torch.Tensor:
    return ranges(env) / room.MAX_RANGE


def goal_polar(env: ManagerBasedRlEnv) -> torch.Tensor:
    bearing = goal_bearing(env)
    return torch.stack([goal_distance(env) / 5.0, bearing.sin(), bearing.cos()], -1)


def vel_body(env: ManagerBasedRlEnv) -> torch.Tensor:
    data = env.scene["robot"].data
    yaw, (x, y, _) = data.joint_pos[:, 2], data.joint_vel.unbind(-1)
    c, s = yaw.cos(), yaw.sin()
    return torch.stack([c * x + s * y, c * y - s * x], -1) / room.V_MAX


def omega(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.scene["robot"].data.joint_vel[:, 2:] / room.OMEGA_MAX


# -- rewards ----------------------------------------------------------------------------------------------------------


class Progress:
    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self._env = env
        self._before = goal_distance(env)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        distance = goal_distance(env)
        nearer = self._before - distance
        self._before = distance
        return nearer

    def reset(self, env_ids: torch.Tensor) -> None:
        self._before[env_ids] = goal_distance(self._env)[env_ids]


class Stuck:
    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self._trail = torch.zeros(room.STUCK_WINDOW, env.num_envs, 2)
        self._row = 0

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        now = place(env)
        moved = (now - self._trail[self._row]).norm(dim=-1)
        self._trail[self._row] = now
        self._row = (self._row + 1) % room.STUCK_WINDOW
        return ((moved < room.STUCK_MOVE) & (env.episode_length_buf > room.STUCK_WINDOW)).float()


def face_goal(env: ManagerBasedRlEnv) -> torch.Tensor:
    return goal_bearing(env).cos() * vel_body(env)[:, 0].abs().clamp(max=1.0)


def near_obstacle(env: ManagerBasedRlEnv) -> torch.Tensor:
    return ((room.SAFE_DIST - ranges(env).min(-1).values) / room.SAFE_DIST).clamp(0.0, 1.0)


def backward(env: ManagerBasedRlEnv) -> torch.Tensor:
    return (room.BACKWARD_THRESH - env.action_manager.action[:, 0]).clamp(min=0.0)


def one(env: ManagerBasedRlEnv) -> torch.Tensor:
    return torch.ones(env.num_envs)


REWARDS = {
    "goal": reached,
    "progress": Progress,
    "face_goal": face_goal,
    "time": one,
    "near_obstacle": near_obstacle,
    "action_smooth": action_rate_l2,
    "backward": backward,
    "stuck": Stuck,
    "collision": touching,
    "timeout": time_out,
}


def build(rooms: int) -> ManagerBasedRlEnv:
    observations = {f.__name__: ObservationTermCfg(func=f) for f in (lidar, goal_polar, vel_body, omega)}
    cfg = ManagerBasedRlEnvCfg(
        scene=SceneCfg(
            num_envs=rooms,
            entities={
                "robot": EntityCfg(
                    spec_fn=robot_spec,
                    articulation=EntityArticulationInfoCfg(actuators=(XmlActuatorCfg(target_names_expr=("j.",)),)),
                ),
                "room": EntityCfg(spec_fn=room_spec),
            },
            sensors=(
                RayCastSensorCfg(
                    name="lidar",
                    frame=ObjRef(type="body", name="robot", entity="robot"),
                    pattern=CirclePatternCfg(),
                    max_distance=room.MAX_RANGE,
                ),
                ContactSensorCfg(
                    name="touch",
                    primary=ContactMatch(mode="geom", pattern="robot", entity="robot"),
                    fields=("found",),
                    reduce="none",
                ),
            ),
        ),
        observations={"actor": ObservationGroupCfg(observations)},
        actions={"velocity": BodyVelocityCfg(entity_name="robot")},
        events={"new_room": EventTermCfg(func=NewRoom, mode="reset")},
        rewards={name: RewardTermCfg(func=f, weight=room.WEIGHTS[name]) for name, f in REWARDS.items()},
        terminations={
            "reached": TerminationTermCfg(func=reached),
            "touching": TerminationTermCfg(func=touching),
            "time_out": TerminationTermCfg(func=time_out, time_out=True),
        },
        sim=SimulationCfg(
            # As few as the task allows: on a CPU they are memory that every step goes through.
            nconmax=8,
            njmax=32,
            mujoco=MujocoCfg(timestep=room.PHYSICS_DT, gravity=(0, 0, 0), iterations=10, ls_iterations=20),
        ),
        decimation=room.SUBSTEPS,
        episode_length_s=room.LIMIT * room.CONTROL_DT,
        seed=0,
        scale_rewards_by_dt=False,
    )
    return ManagerBasedRlEnv(cfg, device="cpu")


def check(env: ManagerBasedRlEnv) -> None:
    """Scans and touches are those of the rooms, at the end of a step."""
    scan, felt = ranges(env).numpy(), touching(env).tolist()
    poses = env.scene["robot"].data.joint_pos.tolist()
    for beams, pose, layout, touch in zip(scan, poses, env.layouts, felt, strict=True):
        room.check_scan(beams, layout, pose)
        room.check_touch(beams.min(), touch)


@torch.inference_mode()
def main() -> None:
    """Be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", type=int, default=256)
    rooms = parser.parse_args().rooms
    actions = 2 * torch.rand(32, rooms, 3, generator=torch.Generator().manual_seed(0)) - 1
    with contextlib.redirect_stdout(sys.stderr):  # they tell what they are made of
        env = build(rooms)
        env.reset()
        env.episode_length_buf[:] = torch.randint(room.LIMIT, (rooms,))  # the first episodes' ages are spread
        for action in actions:
            env.step(action)
            check(env)
    turns, i = Turns(), 0
    while turns.go_on(rooms):
        env.step(actions[i % len(actions)])
        i += 1


if __name__ == "__main__":
    main()
