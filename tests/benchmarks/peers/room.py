"""The task of `navtask.nav`, default config with 12 obstacles, for the peers: what doesn't depend on the engine.

One room at a time, and without navtask, whose packages the peers' environments don't have. Sizes of obstacles are drawn
once and their places at each reset, which is less than navtask does and what these engines do well.
"""

import math
from collections.abc import Sequence

import numpy as np

SIDE, WALL = 10.0, 0.05  # of the room; half a wall's thickness, m
RADIUS, HEIGHT = 0.2, 0.15  # of the robot; its half-height and its scanner's height, m
V_MAX, OMEGA_MAX = 1.5, 2.0
CONTROL_DT, PHYSICS_DT = 0.1, 0.02
SUBSTEPS = round(CONTROL_DT / PHYSICS_DT)
LIMIT = 200  # control steps of an episode
BEAMS, MAX_RANGE = 72, 6.0
ANGLES = 2 * np.pi * np.arange(BEAMS) / BEAMS
GOAL_RADIUS = 0.3
GAP, CLEARANCE, GOAL_DISTANCE = 0.5, 0.3, 2.0

CYLINDERS, BOXES = 6, 6
OBSTACLES = CYLINDERS + BOXES
OBSTACLE_HALF_HEIGHT = 0.5
HALF = np.random.default_rng(0).uniform(0.15, 0.6, (OBSTACLES, 2))
"""(12, 2) half-lengths, m; the cylinders come first, with their radius in the first column."""
REACH = [*HALF[:CYLINDERS, 0].tolist(), *np.hypot(*HALF[CYLINDERS:].T).tolist()]
"""Radius of the circle around each obstacle, m."""

WALLS = (
    ((SIDE / 2 + WALL, 0.0), (WALL, SIDE / 2 + 2 * WALL)),
    ((-SIDE / 2 - WALL, 0.0), (WALL, SIDE / 2 + 2 * WALL)),
    ((0.0, SIDE / 2 + WALL), (SIDE / 2 + 2 * WALL, WALL)),
    ((0.0, -SIDE / 2 - WALL), (SIDE / 2 + 2 * WALL, WALL)),
)
"""Centre and half-lengths of each, m."""

WEIGHTS = {
    "goal": 15.0,
    "progress": 2.0,
    "face_goal": 0.05,
    "time": -0.02,
    "near_obstacle": -0.08,
    "action_smooth": -0.02,
    "backward": -0.05,
    "stuck": -0.03,
    "collision": -12.0,
    "timeout": -4.0,
}
SAFE_DIST, BACKWARD_THRESH = 0.25, -0.05
STUCK_WINDOW, STUCK_MOVE = 25, 0.30


class Layout:
    """Where everything stands in a new room: by rejection, the circles around obstacles apart from each other; where no
    try succeeds, the last one stands."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.centres: list[tuple[float, float]] = []
        self.yaws = (np.pi * rng.random(OBSTACLES)).tolist()
        for reach in REACH:
            free = SIDE / 2 - GAP - reach
            for x, y in (free * (2 * rng.random((64, 2)) - 1)).tolist():
                if self._clearance(x, y) >= reach + GAP:
                    break
            self.centres.append((x, y))
        inner = SIDE / 2 - CLEARANCE
        for x, y, gx, gy in (inner * (2 * rng.random((64, 4)) - 1)).tolist():
            apart = math.hypot(gx - x, gy - y) >= GOAL_DISTANCE
            if apart and min(self._clearance(x, y), self._clearance(gx, gy)) >= CLEARANCE:
                break
        self.start = (x, y, 2 * math.pi * rng.random() - math.pi)
        self.goal = (gx, gy)

    def _clearance(self, x: float, y: float) -> float:
        placed = zip(self.centres, REACH, strict=False)
        return min((math.hypot(x - cx, y - cy) - reach for (cx, cy), reach in placed), default=math.inf)

    def ranges(self, x: float, y: float, yaw: float) -> np.ndarray:
        """(72,) what a scan from a pose must show, m, by geometry; the engines' scans are checked with it."""
        beam = np.stack([np.cos(yaw + ANGLES), np.sin(yaw + ANGLES)], 1)
        place = np.array([x, y])
        nearest = np.full(BEAMS, MAX_RANGE)
        for (cx, cy), radius in zip(self.centres[:CYLINDERS], HALF[:CYLINDERS, 0], strict=True):
            d = np.array([cx, cy]) - place
            along = beam @ d
            root = along**2 - d @ d + radius**2
            hit = (root > 0) & (along > 0)
            nearest[hit] = np.minimum(nearest[hit], along[hit] - np.sqrt(root[hit]))
        boxes = [*zip(self.centres[CYLINDERS:], HALF[CYLINDERS:], self.yaws[CYLINDERS:], strict=True)]
        boxes += [(centre, half, 0.0) for centre, half in WALLS]
        for centre, half, turn in boxes:
            c, s = math.cos(turn), math.sin(turn)
            into = np.array([[c, s], [-s, c]])
            p, v = into @ (place - centre), beam @ into.T
            with np.errstate(divide="ignore"):
                first, second = (-np.array(half) - p) / v, (np.array(half) - p) / v
            enter, leave = np.minimum(first, second).max(1), np.maximum(first, second).min(1)
            hit = (enter < leave) & (enter > 0)
            nearest[hit] = np.minimum(nearest[hit], enter[hit])
        return nearest


def check_scan(ranges: np.ndarray, layout: Layout, pose: Sequence[float]) -> None:
    """Raise where an engine's scan (72,), m, is not that of the room: moved obstacles that it has not noticed, say.

    Beams that graze an edge may hit or miss.
    """
    wrong = np.sort(np.abs(ranges - layout.ranges(*pose)))[-4]
    if wrong > 0.005:
        raise RuntimeError(f"several beams are wrong by {wrong:.3f} m and more")


def check_touch(shortest: float, touching: bool) -> None:
    """Raise where an engine's contact doesn't agree with the shortest beam, m; it may be a physics step old, and the
    beams are 5 degrees apart."""
    if touching != (shortest < RADIUS) and abs(shortest - RADIUS) > 0.06:
        raise RuntimeError(f"{'touching' if touching else 'not touching'} at {shortest:.3f} m")


def world_command(action: list[float], yaw: float) -> tuple[float, float, float]:
    """World-frame velocities, m/s and rad/s, for a clipped body-frame action, at the control step's mean heading."""
    v, u, omega = V_MAX * action[0], V_MAX * action[1], OMEGA_MAX * action[2]
    heading = yaw + omega * CONTROL_DT / 2
    c, s = math.cos(heading), math.sin(heading)
    return c * v - s * u, s * v + c * u, omega


class Episode:
    """What an episode carries, and what follows from each of its instants."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._age = int(self._rng.integers(LIMIT))  # at the first episode's begin, so that rooms don't end together

    def begin(self) -> Layout:
        """A new room."""
        self.layout = Layout(self._rng)
        x, y, _ = self.layout.start
        self._step, self._age = self._age, 0
        self._action = [0.0, 0.0, 0.0]
        self._distance = math.dist((x, y), self.layout.goal)
        self._trail = [(x, y)]
        return self.layout

    def observe(
        self, pose: tuple[float, float, float], velocity: tuple[float, float, float], scan: np.ndarray
    ) -> np.ndarray:
        """(78,) float32: scan, goal, body-frame velocity and yaw rate. ``velocity`` in the world frame; ``scan`` (72,)
        in m."""
        x, y, yaw = pose
        gx, gy = self.layout.goal
        bearing = math.atan2(gy - y, gx - x) - yaw
        c, s = math.cos(yaw), math.sin(yaw)
        observation = np.empty(BEAMS + 6, np.float32)
        observation[:BEAMS] = scan / MAX_RANGE
        observation[BEAMS:] = (
            math.hypot(gx - x, gy - y) / 5.0,
            math.sin(bearing),
            math.cos(bearing),
            (c * velocity[0] + s * velocity[1]) / V_MAX,
            (c * velocity[1] - s * velocity[0]) / V_MAX,
            velocity[2] / OMEGA_MAX,
        )
        return observation

    def judge(
        self, observation: np.ndarray, place: tuple[float, float], action: list[float], touching: bool
    ) -> tuple[float, bool, bool]:
        """Reward, terminated and truncated, at the end of a control step."""
        self._step += 1
        self._trail.append(place)
        distance = math.dist(place, self.layout.goal)
        success = not touching and distance < GOAL_RADIUS
        timeout = not touching and not success and self._step >= LIMIT
        shortest = float(observation[:BEAMS].min()) * MAX_RANGE
        _, _, cosine, forward, _, _ = observation[BEAMS:].tolist()
        stuck = len(self._trail) > STUCK_WINDOW and math.dist(place, self._trail[-1 - STUCK_WINDOW]) < STUCK_MOVE
        terms = {
            "goal": float(success),
            "progress": self._distance - distance,
            "face_goal": cosine * min(1.0, abs(forward)),
            "time": 1.0,
            "near_obstacle": min(1.0, max(0.0, (SAFE_DIST - shortest) / SAFE_DIST)),
            "action_smooth": sum((a - b) ** 2 for a, b in zip(action, self._action, strict=True)),
            "backward": max(0.0, BACKWARD_THRESH - action[0]),
            "stuck": float(stuck),
            "collision": float(touching),
            "timeout": float(timeout),
        }
        self._distance, self._action = distance, action
        return sum(WEIGHTS[name] * value for name, value in terms.items()), touching or success, timeout
