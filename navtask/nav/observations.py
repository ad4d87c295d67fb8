"""The observation's terms. Each brings itself to order one."""

import math

import torch

from navtask.interface import Measured
from navtask.nav.config import NavConfig
from navtask.nav.robot import ROBOT
from navtask.nav.sensing import Sensed, Truth
from navtask.nav.terms import deployable, sim_only


def _beams(config: NavConfig) -> int:
    return config.lidar.beams


def _scan(config: NavConfig) -> Measured:
    lidar = config.lidar
    return Measured(
        input="scan",
        unit="m",
        meaning="ranges from the body's centre, beam i at angle_min + i * angle_increment from straight ahead, "
        "counter-clockwise",
        transform="range",
        scale=lidar.max_range,
        details={
            "angle_min": 0.0,
            "angle_increment": 2 * math.pi / lidar.beams,
            "noise_std": lidar.noise_std,
            "dropout": lidar.dropout,
        },
    )


@deployable(width=_beams, mirror="beams", measured=_scan)
def lidar(sensed: Sensed) -> torch.Tensor:
    """Ranges as a share of the maximum range, in [0, 1]."""
    return sensed.scan / sensed.max_range


def _goal(config: NavConfig) -> Measured:
    return Measured(
        input="goal",
        unit="m",
        meaning="x (forward) and y (left) of the goal in the body's frame",
        width=2,
        transform="polar",
        scale=config.goal_distance_scale,
    )


@deployable(width=3, mirror=(1, -1, 1), measured=_goal)
def goal_polar(sensed: Sensed) -> torch.Tensor:
    """Scaled distance of the goal, sine and cosine of its bearing in the body frame."""
    cosine, sine = sensed.goal_bearing.unbind(-1)
    return torch.stack([sensed.goal_distance / sensed.goal_distance_scale, sine, cosine], dim=-1)


def _vel_body(config: NavConfig) -> Measured:
    meaning = "forward and left speed, in the body's frame"
    return Measured(input="vel_body", unit="m/s", meaning=meaning, scale=ROBOT.v_max)


@deployable(width=2, mirror=(1, -1), measured=_vel_body)
def vel_body(sensed: Sensed) -> torch.Tensor:
    """Forward and left speed over the greatest speed."""
    return sensed.vel_body / sensed.v_max


def _omega(config: NavConfig) -> Measured:
    return Measured(input="omega", unit="rad/s", meaning="yaw rate, counter-clockwise", scale=ROBOT.omega_max)


@deployable(width=1, mirror=(-1,), measured=_omega)
def omega(sensed: Sensed) -> torch.Tensor:
    """Yaw rate over the greatest yaw rate."""
    return (sensed.omega / sensed.omega_max).unsqueeze(-1)


def _action(config: NavConfig) -> Measured:
    return Measured(input="action", unit="1", meaning="the last action, clipped to [-1, 1]; zeros at first")


@deployable(width=3, mirror=(1, -1, -1), measured=_action)
def action_prev(sensed: Sensed) -> torch.Tensor:
    """The last clipped action."""
    return sensed.action


@sim_only(width=1, mirror=(1,))
def truth_clearance(sensed: Sensed, truth: Truth) -> torch.Tensor:
    """True distance from the robot's centre to the nearest surface, as a share of the maximum range."""
    return (truth.clearance / sensed.max_range).unsqueeze(-1)


@sim_only(width=_beams, mirror="beams")
def truth_scan_clean(sensed: Sensed, truth: Truth) -> torch.Tensor:
    """The scan without noise, as a share of the maximum range."""
    return truth.scan_clean / sensed.max_range


@sim_only(width=1, mirror=(1,))
def truth_contact(sensed: Sensed, truth: Truth) -> torch.Tensor:
    """1 when touching, from the engine's contacts."""
    return truth.touching.float().unsqueeze(-1)


@sim_only(width=2, mirror=(1, -1))
def truth_nearest_dir(sensed: Sensed, truth: Truth) -> torch.Tensor:
    """Body-frame unit vector to the nearest surface."""
    return truth.nearest
