"""The observation's terms. Each brings itself to order one.

Mirrored in the plane that the arm stands in at home, angles about upright axes change their sign, and so does y.
"""

import torch

from navtask.reach.sensing import Sensed
from navtask.reach.terms import deployable

MIRROR = (-1, 1, 1, -1, 1, -1)
"""Sign of each joint's mirrored angle, speed and action."""


@deployable(width=6, mirror=MIRROR)
def joint_pos(sensed: Sensed) -> torch.Tensor:
    """Angles from the home posture, rad."""
    return sensed.joint_pos - sensed.home


@deployable(width=6, mirror=MIRROR)
def joint_vel(sensed: Sensed) -> torch.Tensor:
    """Speeds over the greatest commanded speed."""
    return sensed.joint_vel / sensed.v_max


@deployable(width=3, mirror=(1, -1, 1))
def to_target(sensed: Sensed) -> torch.Tensor:
    """Scaled difference of position from the tool to the target, in the base's frame."""
    return sensed.to_target / sensed.goal_distance_scale


@deployable(width=6, mirror=MIRROR)
def action_prev(sensed: Sensed) -> torch.Tensor:
    """The last clipped action."""
    return sensed.action
