"""The observation's terms. Each brings itself to order one."""

import torch

from navtask.nav.config import NavConfig
from navtask.nav.sensing import Sensed, Truth
from navtask.nav.terms import deployable, sim_only


def _beams(config: NavConfig) -> int:
    return config.lidar.beams


@deployable(width=_beams, mirror="beams")
def lidar(sensed: Sensed) -> torch.Tensor:
    """Ranges as a share of the maximum range, in [0, 1]."""
    return sensed.scan / sensed.max_range


@deployable(width=3, mirror=(1, -1, 1))
def goal_polar(sensed: Sensed) -> torch.Tensor:
    """Scaled distance of the goal, sine and cosine of its bearing in the body frame."""
    cosine, sine = sensed.goal_bearing.unbind(-1)
    return torch.stack([sensed.goal_distance / sensed.goal_distance_scale, sine, cosine], dim=-1)


@deployable(width=2, mirror=(1, -1))
def vel_body(sensed: Sensed) -> torch.Tensor:
    """Forward and left speed over the greatest speed."""
    return sensed.vel_body / sensed.v_max


@deployable(width=1, mirror=(-1,))
def omega(sensed: Sensed) -> torch.Tensor:
    """Yaw rate over the greatest yaw rate."""
    return (sensed.omega / sensed.omega_max).unsqueeze(-1)


@deployable(width=3, mirror=(1, -1, -1))
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
