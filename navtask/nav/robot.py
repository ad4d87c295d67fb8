"""What the robot is: read from ``robot.xml``, so that there is one place for its numbers."""

import math
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROBOT_XML = Path(__file__).with_name("robot.xml")


@dataclass(frozen=True)
class Robot:
    """Geometry and limits of the robot."""

    radius: float
    """m"""
    height: float
    """Of the scanner's plane and the geom's centre, m."""
    v_max: float
    """Greatest commanded speed along each body axis, m/s."""
    omega_max: float
    """Greatest commanded yaw rate, rad/s."""
    lag: float
    """Time constant of the velocity servos, mass / kv, s."""


def _read() -> Robot:
    root = ET.parse(ROBOT_XML).getroot()
    geom = next(g for g in root.iter("geom") if g.get("name") == "robot")
    servos = {a.get("name"): a for a in root.iter("velocity")}
    limit = {name: float(a.attrib["ctrlrange"].split()[1]) for name, a in servos.items()}
    if limit["vx"] != limit["vy"] or not all(map(math.isfinite, limit.values())):
        raise ValueError(f"{ROBOT_XML.name}: vx and vy need the same finite ctrlrange")
    return Robot(
        radius=float(geom.attrib["size"].split()[0]),
        height=float(geom.attrib["pos"].split()[2]),
        v_max=limit["vx"],
        omega_max=limit["wz"],
        lag=float(geom.attrib["mass"]) / float(servos["vx"].attrib["kv"]),
    )


ROBOT = _read()
