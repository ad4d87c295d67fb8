"""The settings of the navigation task. The numbers themselves are in ``conf/task/``.

Importing this module is cheap (no torch), so that a settings mistake is told at once.
"""

import math
from dataclasses import dataclass

from navtask.config import TaskConfig, check, validate_task


@dataclass(kw_only=True)
class AutomatonConfig:
    """A field of cells across the middle of a corridor, grown by a cellular automaton; see ``navtask/nav/barn.py``."""

    cell: float
    """Edge of a cell, m; the room's width is a whole number of them."""
    columns: int
    """Length of the field along x, cells."""
    fill: list[float]
    """Least and greatest share of the cells that are filled at first."""
    smoothing: list[int]
    """Fewest and most steps of the automaton."""


@dataclass(kw_only=True)
class RoomsConfig:
    """How rooms are drawn: a rectangle with a start, a goal, and cylinders and rotated boxes spread at random, or with
    what an automaton grows."""

    name: str
    """What reports call rooms of this kind."""
    size: list[float]
    """Inner lengths of the room along x and y, m."""
    obstacles: list[int]
    """Fewest and most obstacles in a room."""
    half_size: list[float] | None
    """Least and greatest radius of a cylinder or half-length of a box's side, m; null where an automaton sets them."""
    gap: float
    """Least distance between two obstacles, and between an obstacle and a wall, m. More than the robot's diameter: then
    the obstacles, each grown by the robot's radius, are disjoint islands, and every free place can be reached.
    With an automaton, least width of a lane that leads from the start to the goal."""
    margin: float
    """Least free distance around the robot's disc at the start and at the goal, m."""
    goal_distance: float
    """Least straight distance from start to goal, m."""
    tries: int
    """How often a place is drawn anew before the drawing is counted as failed."""
    automaton: AutomatonConfig | None = None
    """What grows the obstacles; null spreads them at random."""


@dataclass(kw_only=True)
class LidarConfig:
    """The scanner: beams evenly over 360 degrees from the body's centre, beam 0 forward, counter-clockwise."""

    beams: int
    max_range: float
    """m"""
    noise_std: float
    """Standard deviation of Gaussian noise on each range, m."""
    dropout: float
    """Share of beams that return nothing (read as the maximum range)."""


@dataclass(kw_only=True)
class NavConfig(TaskConfig):
    """The whole task."""

    rooms: RoomsConfig
    lidar: LidarConfig
    history: int
    """How many of the last observations are stacked."""


OBSTACLES_MAX = 128
"""Most obstacles in a room: every room's model has a geom for each."""
ROOM_MAX = 90.0
"""Greatest length of a room, m; unused obstacles wait beyond it."""


def validate_rooms(rooms: RoomsConfig, robot_radius: float, key: str = "task.rooms") -> None:
    """Raise ConfigError unless rooms can be drawn from these settings."""
    check(
        len(rooms.size) == 2 and all(2.0 <= length <= ROOM_MAX for length in rooms.size),
        f"{key}.size",
        rooms.size,
        f"two lengths of 2 to {ROOM_MAX:g} m, [x, y]",
    )
    low, high = (rooms.obstacles * 2)[:2] if rooms.obstacles else (1, 0)
    check(
        len(rooms.obstacles) == 2 and 0 <= low <= high <= OBSTACLES_MAX,
        f"{key}.obstacles",
        rooms.obstacles,
        f"[fewest, most] with 0 <= fewest <= most <= {OBSTACLES_MAX}",
    )
    if rooms.automaton is None:
        sizes = rooms.half_size or []
        check(
            len(sizes) == 2 and 0.05 <= sizes[0] <= sizes[1] <= ROOM_MAX,
            f"{key}.half_size",
            rooms.half_size,
            f"[least, greatest] in m, with 0.05 <= least <= greatest <= {ROOM_MAX:g}",
        )
    else:
        check(rooms.half_size is None, f"{key}.half_size", rooms.half_size, "null: the automaton sets them")
        _validate_automaton(rooms, rooms.automaton, 2 * (robot_radius + rooms.margin), key)
    check(
        rooms.gap > 2 * robot_radius,
        f"{key}.gap",
        rooms.gap,
        f"more than the robot's diameter, {2 * robot_radius:g} m, so that every goal can be reached",
    )
    # Start and goal lie in this inner rectangle; where no free place is found, in opposite corners of it.
    inner = [length - 2 * (robot_radius + rooms.margin) for length in rooms.size]
    check(
        rooms.margin >= 0 and min(inner) > 0,
        f"{key}.margin",
        rooms.margin,
        f"0 to below {min(rooms.size) / 2 - robot_radius:g} m, half the room less the robot's radius",
    )
    check(
        0 <= rooms.goal_distance <= 0.7 * math.hypot(*inner),
        f"{key}.goal_distance",
        rooms.goal_distance,
        f"0 to {0.7 * math.hypot(*inner):.1f} m, 0.7 of the diagonal that start and goal may lie on",
    )
    check(rooms.tries >= 1, f"{key}.tries", rooms.tries, "at least 1")


def _validate_automaton(rooms: RoomsConfig, automaton: AutomatonConfig, disc: float, key: str) -> None:
    """``disc``: least length of a bay, m."""
    check(automaton.cell >= 0.1, f"{key}.automaton.cell", automaton.cell, "at least 0.1 m")
    rows = rooms.size[1] / automaton.cell
    check(
        3 <= round(rows) <= 32 and abs(rows - round(rows)) < 1e-6,
        f"{key}.automaton.cell",
        automaton.cell,
        f"a part of the room's width, {rooms.size[1]:g} m, that goes into it 3 to 32 times",
    )
    check(
        rooms.gap <= rooms.size[1] - 2 * automaton.cell,
        f"{key}.gap",
        rooms.gap,
        f"at most {rooms.size[1] - 2 * automaton.cell:g} m, the room's width less a cell at either side",
    )
    least, most = math.ceil(rooms.gap / automaton.cell), math.floor((rooms.size[0] - 2 * disc) / automaton.cell + 1e-6)
    check(
        least <= automaton.columns <= most,
        f"{key}.automaton.columns",
        automaton.columns,
        f"{least} to {most}: the gap, to the room's length less a bay of {disc:g} m at either end",
    )
    fill, smoothing = automaton.fill, automaton.smoothing
    check(
        len(fill) == 2 and 0 <= fill[0] <= fill[1] <= 0.5,
        f"{key}.automaton.fill",
        fill,
        "[least, greatest] with 0 <= least <= greatest <= 0.5",
    )
    check(
        len(smoothing) == 2 and 0 <= smoothing[0] <= smoothing[1] <= 16,
        f"{key}.automaton.smoothing",
        smoothing,
        "[fewest, most] with 0 <= fewest <= most <= 16",
    )


def validate(config: NavConfig) -> None:
    """Raise ConfigError, naming key, value and what was expected, when the task cannot be built from ``config``.

    Checks names and parameters against the registries, so it imports the terms (and torch).
    """
    from navtask.nav.robot import ROBOT
    from navtask.nav.terms import TERMS

    validate_rooms(config.rooms, ROBOT.radius)
    lidar = config.lidar
    check(4 <= lidar.beams <= 1024, "task.lidar.beams", lidar.beams, "4 to 1024")
    check(
        lidar.max_range > ROBOT.radius,
        "task.lidar.max_range",
        lidar.max_range,
        f"more than the robot's radius, {ROBOT.radius} m",
    )
    check(
        0 <= lidar.noise_std <= lidar.max_range,
        "task.lidar.noise_std",
        lidar.noise_std,
        f"0 to the maximum range, {lidar.max_range:g} m",
    )
    check(0 <= lidar.dropout < 1, "task.lidar.dropout", lidar.dropout, "a share, 0 to below 1")
    check(1 <= config.history <= 16, "task.history", config.history, "1 to 16")
    validate_task(config, TERMS)
