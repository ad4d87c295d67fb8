"""What is known at one instant: what the robot senses, and the truth behind it."""

from dataclasses import dataclass

import torch
import warp as wp

wp.set_module_options({"enable_backward": False})


@dataclass
class Sensed:
    """What a real robot has. Live tensors, refreshed once an instant; terms must not keep or change them."""

    scan: torch.Tensor
    """(N, beams) ranges, m, noise included."""
    goal_distance: torch.Tensor
    """(N,) m."""
    goal_bearing: torch.Tensor
    """(N, 2) cosine and sine of the goal's direction in the body frame."""
    vel_body: torch.Tensor
    """(N, 2) forward and left speed, m/s."""
    omega: torch.Tensor
    """(N,) yaw rate, rad/s."""
    action: torch.Tensor
    """(N, 3) the last clipped action."""
    shortest: torch.Tensor
    """(N,) the shortest beam of ``scan``, m."""
    max_range: float
    goal_distance_scale: float
    v_max: float
    omega_max: float


@dataclass
class Truth:
    """What only the simulator has."""

    pose: torch.Tensor
    """(N, 3) x, y in m and yaw in rad; finite always."""
    scan_clean: torch.Tensor
    """(N, beams) ranges without noise, m."""
    clearance: torch.Tensor
    """(N,) distance from the robot's centre to the nearest surface, m."""
    nearest: torch.Tensor
    """(N, 2) body-frame unit vector to that surface."""
    touching: torch.Tensor
    """(N,) bool, from the engine's contacts."""


@wp.kernel
def read_pose(
    # which rooms; whether their episode begins with this reading
    mask: wp.array(dtype=wp.bool),
    begins: bool,
    # in
    qpos: wp.array(dtype=wp.vec3),
    qvel: wp.array(dtype=wp.vec3),
    goal: wp.array(dtype=wp.vec2),
    step: wp.array(dtype=wp.int64),
    bounds: wp.vec2,
    # out
    finite: wp.array(dtype=wp.bool),
    outside: wp.array(dtype=wp.bool),
    pose: wp.array(dtype=wp.vec3),
    goal_distance: wp.array(dtype=wp.float32),
    goal_bearing: wp.array(dtype=wp.vec2),
    vel_body: wp.array(dtype=wp.vec2),
    omega: wp.array(dtype=wp.float32),
    trail: wp.array2d(dtype=wp.vec2),
):
    """Body-frame readings of the masked rooms; where the state is not finite the last reading stays."""
    room = wp.tid()
    if not mask[room]:
        return
    q = qpos[room]
    v = qvel[room]
    sane = wp.isfinite(q) and wp.isfinite(v)
    finite[room] = sane
    if not sane:
        return
    c = wp.cos(q[2])
    s = wp.sin(q[2])
    place = wp.vec2(q[0], q[1])
    to_goal = goal[room] - place
    distance = wp.length(to_goal)
    size = wp.max(distance, 1.0e-6)
    outside[room] = wp.abs(q[0]) > bounds[0] or wp.abs(q[1]) > bounds[1]
    pose[room] = q
    goal_distance[room] = distance
    goal_bearing[room] = wp.vec2((c * to_goal[0] + s * to_goal[1]) / size, (c * to_goal[1] - s * to_goal[0]) / size)
    vel_body[room] = wp.vec2(c * v[0] + s * v[1], c * v[1] - s * v[0])
    omega[room] = v[2]
    length = trail.shape[1]
    if begins:
        for slot in range(length):
            trail[room, slot] = place
    else:
        trail[room, int(step[room]) % length] = place
