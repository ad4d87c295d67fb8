"""The reward's terms: pure functions of one instant, ``f(context, **params) -> (N,)``."""

from dataclasses import dataclass

import torch

from navtask.reach.sensing import Sensed
from navtask.reach.terms import reward


@dataclass
class RewardContext:
    """One instant."""

    sensed: Sensed
    action: torch.Tensor
    """(N, 6) clipped, in [-1, 1]."""
    action_before: torch.Tensor
    """(N, 6) that of the step before; 0 at the first."""
    success: torch.Tensor
    """(N,) bool: this very step ends the episode by reaching the target."""


@reward()
def distance(context: RewardContext) -> torch.Tensor:
    """From the tool to the target, m."""
    return context.sensed.distance.clone()


@reward()
def effort(context: RewardContext) -> torch.Tensor:
    """|a|^2, of the clipped action."""
    return context.action.square().sum(-1)


@reward()
def goal(context: RewardContext) -> torch.Tensor:
    """1 on the step that succeeds."""
    return context.success.float()


@reward()
def action_smooth(context: RewardContext) -> torch.Tensor:
    """|a(t) - a(t-1)|^2."""
    return (context.action - context.action_before).square().sum(-1)
