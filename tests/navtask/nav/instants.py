"""Instants made by hand for the terms' tests: every value is given, none is computed by the package."""

from dataclasses import fields

import torch

from navtask.nav.rewards import RewardContext
from navtask.nav.sensing import Sensed, Truth


def sensed(num=1, **values):
    """What a robot at rest far from everything senses, but for ``values``; limits as round numbers."""
    given = {
        "scan": torch.full((num, 8), 4.0),
        "goal_distance": torch.full((num,), 3.0),
        "goal_bearing": torch.tensor([[1.0, 0.0]]).repeat(num, 1),
        "vel_body": torch.zeros(num, 2),
        "omega": torch.zeros(num),
        "action": torch.zeros(num, 3),
        "max_range": 8.0,
        "goal_distance_scale": 6.0,
        "v_max": 2.0,
        "omega_max": 4.0,
    }
    given = {**given, **values}
    return Sensed(**{"shortest": given["scan"].amin(-1), **given})


def truth(num=1, **values):
    """The truth about the same robot, but for ``values``."""
    given = {
        "pose": torch.zeros(num, 3),
        "scan_clean": torch.full((num, 8), 4.0),
        "clearance": torch.full((num,), 4.0),
        "nearest": torch.tensor([[1.0, 0.0]]).repeat(num, 1),
        "touching": torch.zeros(num, dtype=torch.bool),
    }
    return Truth(**{**given, **values})


class Instant(RewardContext):
    """A context that is told where the robot was instead of keeping a trail."""

    def place_before(self, steps):
        return self.trail[:, steps]


def context(num=1, *, sense=None, true=None, **values):
    """A step in which nothing happens, but for ``values``. ``trail[:, k]`` is where the robot was k steps ago."""
    no = torch.zeros(num, dtype=torch.bool)
    given = {
        "sensed": sensed(num, **(sense or {})),
        "truth": truth(num, **(true or {})),
        "action": torch.zeros(num, 3),
        "action_before": torch.zeros(num, 3),
        "goal_distance_before": torch.full((num,), 3.0),
        "success": no,
        "collision": no,
        "truncated": no,
        "out_of_bounds": no,
        "trail": torch.zeros(num, 4, 2),
        "step": torch.full((num,), 10),
    }
    unused = {f.name: torch.zeros(num, dtype=torch.int64) for f in fields(RewardContext) if f.name not in given}
    return Instant(**{**unused, **given, **values})
