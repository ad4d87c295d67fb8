"""The reward's terms: pure functions of one instant, ``f(context, **params) -> (N,)``."""

from dataclasses import dataclass

import torch

from navtask.nav.sensing import Sensed, Truth
from navtask.nav.terms import reward


@dataclass
class RewardContext:
    """One instant, with what it takes to compare it with earlier ones."""

    sensed: Sensed
    truth: Truth
    action: torch.Tensor
    """(N, 3) clipped, in [-1, 1]."""
    action_before: torch.Tensor
    """(N, 3) that of the step before; 0 at the first."""
    goal_distance_before: torch.Tensor
    """(N,) one instant earlier, m."""
    success: torch.Tensor
    """(N,) bool; this and the next three are exclusive ends of this very step."""
    collision: torch.Tensor
    truncated: torch.Tensor
    out_of_bounds: torch.Tensor
    trail: torch.Tensor
    """(N, 2 (L + 1), 2) the last places of this episode, m."""
    now: torch.Tensor
    """(N,) int64: row of ``trail.view(-1, 2)`` that is now; those before it are the steps before."""
    step: torch.Tensor
    """(N,) control steps since the reset."""

    def place_before(self, steps: int) -> torch.Tensor:
        """(N, 2) where the robot was ``steps`` control steps ago; meaningless while the episode is younger."""
        return self.trail.view(-1, 2).index_select(0, self.now - steps)


@reward()
def goal(context: RewardContext) -> torch.Tensor:
    """1 on the step that succeeds."""
    return context.success.float()


@reward(bounds={"gamma": (0, 1)})
def progress(context: RewardContext, *, gamma: float | None = None) -> torch.Tensor:
    """d(t-1) - d(t), m; with ``gamma`` the potential-based shaping d(t-1) - gamma d(t) (Ng, Harada, Russell 1999)."""
    nearer = context.goal_distance_before - context.sensed.goal_distance
    return nearer if gamma is None else nearer + (1.0 - gamma) * context.sensed.goal_distance


@reward()
def face_goal(context: RewardContext, *, motion_weighted: bool = True) -> torch.Tensor:
    """cos(bearing), weighted by min(1, |forward speed| / v_max)."""
    facing = context.sensed.goal_bearing[:, 0]
    if not motion_weighted:
        return facing.clone()
    return (context.sensed.vel_body[:, 0].abs() / context.sensed.v_max).clamp_(max=1.0).mul_(facing)


@reward()
def time(context: RewardContext) -> torch.Tensor:
    """1 each step."""
    return torch.ones_like(context.sensed.goal_distance)


@reward(bounds={"safe_dist": (0.01, 100)})
def near_obstacle(context: RewardContext, *, safe_dist: float = 0.25) -> torch.Tensor:
    """clip((safe - shortest beam) / safe, 0, 1); distances from the body's centre, m."""
    return ((safe_dist - context.sensed.shortest) / safe_dist).clamp_(0.0, 1.0)


@reward()
def action_smooth(context: RewardContext) -> torch.Tensor:
    """|a(t) - a(t-1)|^2."""
    return (context.action - context.action_before).square_().sum(-1)


@reward(bounds={"thresh": (-1, 1)})
def backward(context: RewardContext, *, thresh: float = -0.05) -> torch.Tensor:
    """max(0, thresh - commanded forward), in units of the action."""
    return (thresh - context.action[:, 0]).clamp_(min=0.0)


@reward(trail="window", bounds={"window": (1, 10_000), "min_move": (0, 100)})
def stuck(context: RewardContext, *, window: int = 25, min_move: float = 0.30) -> torch.Tensor:
    """1 when the net move over ``window`` steps is below ``min_move`` m, once the episode is that old."""
    moved = (context.truth.pose[:, :2] - context.place_before(window)).square_().sum(-1)
    return ((moved < min_move * min_move) & (context.step >= window)).float()


@reward()
def collision(context: RewardContext) -> torch.Tensor:
    """1 on touching."""
    return context.collision.float()


@reward()
def timeout(context: RewardContext) -> torch.Tensor:
    """1 on the step that is truncated."""
    return context.truncated.float()


@reward()
def out_of_bounds(context: RewardContext) -> torch.Tensor:
    """1 outside the room."""
    return context.out_of_bounds.float()
