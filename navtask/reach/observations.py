"""The observation's terms. Each brings itself to order one.

Mirrored in the plane that the arm stands in at home, angles about upright axes change their sign, and so does y.
"""

import torch

from navtask.interface import Measured
from navtask.reach.arm import read_arm
from navtask.reach.config import ReachConfig
from navtask.reach.sensing import Sensed
from navtask.reach.terms import deployable

MIRROR = (-1, 1, 1, -1, 1, -1)
"""Sign of each joint's mirrored angle, speed and action."""


def _joint_pos(config: ReachConfig) -> Measured:
    home = read_arm().home.tolist()
    return Measured(input="joint_pos", unit="rad", meaning="angle of each joint; offset: the home posture", offset=home)


@deployable(width=6, mirror=MIRROR, measured=_joint_pos)
def joint_pos(sensed: Sensed) -> torch.Tensor:
    """Angles from the home posture, rad."""
    return sensed.joint_pos - sensed.home


def _joint_vel(config: ReachConfig) -> Measured:
    return Measured(input="joint_vel", unit="rad/s", meaning="speed of each joint", scale=read_arm().v_max)


@deployable(width=6, mirror=MIRROR, measured=_joint_vel)
def joint_vel(sensed: Sensed) -> torch.Tensor:
    """Speeds over the greatest commanded speed."""
    return sensed.joint_vel / sensed.v_max


def _to_target(config: ReachConfig) -> Measured:
    meaning = "x, y, z from the tool to the target, in the base's frame"
    return Measured(input="to_target", unit="m", meaning=meaning, scale=config.goal_distance_scale)


@deployable(width=3, mirror=(1, -1, 1), measured=_to_target)
def to_target(sensed: Sensed) -> torch.Tensor:
    """Scaled difference of position from the tool to the target, in the base's frame."""
    return sensed.to_target / sensed.goal_distance_scale


def _action(config: ReachConfig) -> Measured:
    return Measured(input="action", unit="1", meaning="the last action, clipped to [-1, 1]; zeros at first")


@deployable(width=6, mirror=MIRROR, measured=_action)
def action_prev(sensed: Sensed) -> torch.Tensor:
    """The last clipped action."""
    return sensed.action
