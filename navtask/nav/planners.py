"""Classical planners, as policies: they see what a real robot has, and are judged by the same evaluation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tensordict import TensorDict

from navtask.binding import ObservationGroups
from navtask.errors import ConfigError
from navtask.evaluation import Policy
from navtask.nav.config import NavConfig
from navtask.nav.robot import ROBOT
from navtask.nav.terms import OBSERVATIONS

LIMITS = torch.tensor([ROBOT.v_max, ROBOT.v_max, ROBOT.omega_max])
"""Of forward and left speed and yaw rate: what an action of 1 stands for."""


class Reading:
    """What planners look at, found in the group ``policy`` of a task's observation.

    All in the body frame. Of a history the newest observation is read. Raises ConfigError when the task does not show
    what is needed.
    """

    def __init__(self, config: NavConfig):
        groups = ObservationGroups(OBSERVATIONS, config, 1)
        layout = groups.layout("policy")
        self._where = {term.name: slice(start, start + width) for term, start, width in layout}
        for name in ("lidar", "goal_polar", "vel_body", "omega"):
            if name not in self._where:
                raise ConfigError(f"task.observations.{name}.enabled", False, "true: planners look at it")
        self._width = groups.width("policy")
        self._max_range, self._goal_scale = config.lidar.max_range, config.goal_distance_scale
        angles = torch.arange(config.lidar.beams, dtype=torch.float64) * (2 * math.pi / config.lidar.beams)
        self._beams = torch.stack([angles.cos(), angles.sin()], -1).float()

    def _term(self, observation: TensorDict, name: str) -> torch.Tensor:
        newest: torch.Tensor = observation["policy"][:, -self._width :]
        return newest[:, self._where[name]]

    def goal(self, observation: TensorDict) -> torch.Tensor:
        """(N, 2) from the robot to the goal, m."""
        distance, sin, cos = self._term(observation, "goal_polar").unbind(-1)
        return (distance * self._goal_scale).unsqueeze(-1) * torch.stack([cos, sin], -1)

    def velocity(self, observation: TensorDict) -> torch.Tensor:
        """(N, 3) forward and left speed in m/s, yaw rate in rad/s."""
        shares = torch.cat([self._term(observation, "vel_body"), self._term(observation, "omega")], -1)
        return shares * LIMITS.to(shares.device)

    def points(self, observation: TensorDict) -> torch.Tensor:
        """(N, beams, 2) where beams ended, m; out of every reach where nothing was met."""
        ranges = self._term(observation, "lidar") * self._max_range
        ranges = torch.where(ranges < self._max_range * (1 - 1e-6), ranges, 1e3)
        return ranges.unsqueeze(-1) * self._beams.to(ranges.device)


class Straight:
    """At full speed straight to the goal, blind: the floor."""

    def __init__(self, config: NavConfig):
        self._reading = Reading(config)

    def __call__(self, observation: TensorDict) -> torch.Tensor:
        """(N, 3) actions."""
        goal = self._reading.goal(observation)
        direction = goal / goal.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        return torch.cat([direction, torch.zeros_like(direction[:, :1])], -1)


@dataclass(frozen=True, kw_only=True)
class WindowSettings:
    """Of the dynamic-window planner; the defaults were chosen on training rooms."""

    acceleration: float = 12.0
    """Along each axis, m/s^2: what can be reached within a control step, and how hard the robot would brake."""
    speeds: int = 9
    """Candidates for the forward speed, and as many for the left speed, evenly over the window."""
    yaw_rates: tuple[float, ...] = (-1.6, 0.0, 1.6)
    """Candidates for the yaw rate, rad/s: a disc may turn as it likes, and its way bends with it."""
    horizon: float = 0.8
    """How far ahead a candidate's way is followed, s."""
    instants: int = 8
    """Of the horizon at which the way is held against the scan."""
    margin: float = 0.04
    """Distance from the robot's hull within which a point of the scan counts as hit, m."""
    roomy: float = 0.35
    """Distance from the hull beyond which more is no better, m."""
    heading: float = 1.0
    """Weight of going towards the goal."""
    free: float = 1.0
    """Weight of the time for which the way is free."""
    clearance: float = 0.25
    """Weight of the distance that the way keeps."""
    speed: float = 0.4
    """Weight of going fast."""


class DynamicWindow:
    """The dynamic-window approach (D. Fox, W. Burgard, S. Thrun, IEEE Robotics & Automation Magazine 4(1), 1997) for a
    robot that can drive in every direction.

    Every velocity that can be reached within a control step is a candidate. Held for the horizon it leads along an arc,
    which is followed up to the first point of the scan that it hits, or past the goal. Candidates that could not brake
    before that hit are dismissed; of the others the one with the best weighted sum of heading, free way, clearance and
    speed is driven. It remembers nothing, and knows only what the scan shows now: it can get stuck in a dead end.
    """

    def __init__(self, config: NavConfig, settings: WindowSettings | None = None):
        self._settings = settings or WindowSettings()
        self._reading = Reading(config)
        self._control_dt = config.control_dt

    def __call__(self, observation: TensorDict) -> torch.Tensor:
        """(N, 3) actions."""
        # Few rooms at a time on a CPU, so that all their ways stay in its cache.
        rooms = 8 if self._reading.goal(observation).device.type == "cpu" else 1024
        return torch.cat([self._choose(part) for part in observation.split(rooms)])

    def _choose(self, observation: TensorDict) -> torch.Tensor:
        s = self._settings
        goal, points = self._reading.goal(observation), self._reading.points(observation)
        goal_distance = goal.norm(dim=-1).view(-1, 1, 1)
        candidates = self._window(self._reading.velocity(observation))  # (N, C, 3)
        speed = candidates[..., :2].norm(dim=-1)
        time = torch.linspace(0.0, s.horizon, s.instants + 1, device=goal.device)[1:]
        way = arcs(candidates, time)  # (N, C, T, 2)
        distance = nearest(way, points)  # (N, C, T)

        # Where the robot is nearer to something than it likes to be, it may go anywhere but nearer.
        here = points.norm(dim=-1).amin(-1).view(-1, 1, 1)
        least = torch.clamp(here - 0.01, max=ROBOT.radius + s.margin)
        beyond_goal = way.norm(dim=-1) > goal_distance
        hit = (distance < least) & ~beyond_goal
        step = time[0]
        free = torch.where(hit, time, s.horizon + step).amin(-1) - step  # (N, C) s
        # It goes on for a control step before it can brake: v T + v^2 / (2 a) must be free, that is T + v / (2 a) at v.
        admissible = free >= torch.clamp(self._control_dt + speed / (2 * s.acceleration), max=s.horizon)

        unseen = beyond_goal | (time > free.unsqueeze(-1) + 1e-6)
        clearance = torch.where(unseen, torch.inf, distance).amin(-1) - ROBOT.radius
        last = ((free / step).round().long() - 1).clamp(min=0)
        end = way.gather(2, last.view(*last.shape, 1, 1).expand(-1, -1, 1, 2)).squeeze(2)
        along = (end * goal.unsqueeze(1)).sum(-1) / (end.norm(dim=-1) * goal_distance.squeeze(-1)).clamp(min=1e-6)
        score = (
            s.heading * (1 - torch.acos(along.clamp(-1, 1)) / math.pi)
            + s.free * free / s.horizon
            + s.clearance * (clearance / s.roomy).clamp(0, 1)
            + s.speed * speed / ROBOT.v_max
        )
        # Where none will do: away from what is near.
        score = torch.where(admissible, score, distance.amin(-1) - 100.0)
        best = score.argmax(-1).view(-1, 1, 1).expand(-1, 1, 3)
        return candidates.gather(1, best).squeeze(1) / LIMITS.to(goal.device)

    def _window(self, velocity: torch.Tensor) -> torch.Tensor:
        """(N, C, 3) velocities that can be reached from (N, 3) within a control step."""
        s, limits = self._settings, LIMITS[:2].to(velocity.device)
        now, reach = velocity[:, :2], s.acceleration * self._control_dt
        low, high = (now - reach).clamp(-limits, limits), (now + reach).clamp(-limits, limits)
        share = torch.linspace(0.0, 1.0, s.speeds, device=now.device)
        shares = torch.cartesian_prod(share, share)
        speeds = low.unsqueeze(1) + shares * (high - low).unsqueeze(1)  # (N, speeds^2, 2)
        turns = torch.tensor(s.yaw_rates, device=now.device)
        both = speeds.unsqueeze(2).expand(-1, -1, len(turns), -1)
        return torch.cat([both, turns.view(1, 1, -1, 1).expand(*both.shape[:3], 1)], -1).flatten(1, 2)


def arcs(velocity: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """(N, C, T, 2) places, from the origin, of a body that keeps (N, C, 3) velocities in its own frame, at (T,) s."""
    vx, vy, omega = (v.unsqueeze(-1) for v in velocity.unbind(-1))
    angle = omega * time
    # The integrals of cos and sin of the heading: sin(w t) / w and (1 - cos(w t)) / w = t sinc(..) and so on.
    forward = time * torch.special.sinc(angle / math.pi)
    sideways = time * torch.sin(angle / 2) * torch.special.sinc(angle / (2 * math.pi))
    return torch.stack([forward * vx - sideways * vy, sideways * vx + forward * vy], -1)


def nearest(places: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """(N, C, T) distance from each of (N, C, T, 2) places to the nearest of its room's (N, B, 2) points."""
    # |p - q|^2 = |p|^2 + (-2 q, |q|^2) . (p, 1): one product of matrices, and a minimum.
    p = places.flatten(1, 2)
    q = torch.cat([-2 * points, points.square().sum(-1, keepdim=True)], -1)
    least = torch.bmm(torch.cat([p, torch.ones_like(p[..., :1])], -1), q.transpose(1, 2)).amin(-1)
    return (least + p.square().sum(-1)).clamp(min=0).sqrt().view(places.shape[:-1])


PLANNERS: dict[str, Callable[[NavConfig], Policy]] = {"straight": Straight, "dynamic_window": DynamicWindow}
"""By the names that an evaluation knows them by."""
