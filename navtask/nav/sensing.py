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
def drive(
    # which rooms
    active: wp.array(dtype=wp.bool),
    # in
    actions: wp.array2d(dtype=wp.float32),
    pose: wp.array(dtype=wp.vec3),
    omega: wp.array(dtype=wp.float32),
    goal_distance: wp.array(dtype=wp.float32),
    limits: wp.vec3,
    control_dt: float,
    lag: float,
    # in and out
    action: wp.array2d(dtype=wp.float32),
    # out
    action_before: wp.array2d(dtype=wp.float32),
    goal_distance_before: wp.array(dtype=wp.float32),
    ctrl: wp.array(dtype=wp.vec3),
):
    """Turn body-frame actions into what the world-frame joints are told, and keep what the next instant is compared to.

    Held over a control step of length T, the command must point, on average, where the body does. The mean heading is
    theta + w T/2 + (w0 - w) lag, and the servos trail by w lag more: theta + w T/2 + w0 lag, with w the commanded and
    w0 the present yaw rate.
    """
    room = wp.tid()
    if not active[room]:
        return
    for axis in range(3):
        action_before[room, axis] = action[room, axis]
        action[room, axis] = actions[room, axis]
    goal_distance_before[room] = goal_distance[room]
    v = wp.cw_mul(wp.vec3(actions[room, 0], actions[room, 1], actions[room, 2]), limits)
    heading = pose[room][2] + v[2] * control_dt / 2.0 + omega[room] * lag
    c = wp.cos(heading)
    s = wp.sin(heading)
    ctrl[room] = wp.vec3(c * v[0] - s * v[1], s * v[0] + c * v[1], v[2])


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
    touching: wp.array(dtype=wp.bool),
    bounds: wp.vec2,
    goal_radius: float,
    # out
    finite: wp.array(dtype=wp.bool),
    ends: wp.array2d(dtype=wp.bool),
    pose: wp.array(dtype=wp.vec3),
    goal_distance: wp.array(dtype=wp.float32),
    goal_bearing: wp.array(dtype=wp.vec2),
    vel_body: wp.array(dtype=wp.vec2),
    omega: wp.array(dtype=wp.float32),
    trail: wp.array2d(dtype=wp.vec2),
    now: wp.array(dtype=wp.int64),
):
    """Body-frame readings of the masked rooms; where the state is not finite the last reading stays.

    ``ends`` is in the order of ``NavEnv.ends``: collision, out of bounds, success. Places go to ``trail`` twice, half
    its length apart, so that those before them always lie in front of the second. ``now`` is the row of that one when
    the trails of all rooms stand one after the other.
    """
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
    ends[room, 0] = touching[room]
    ends[room, 1] = wp.abs(q[0]) > bounds[0] or wp.abs(q[1]) > bounds[1]
    ends[room, 2] = distance < goal_radius
    pose[room] = q
    goal_distance[room] = distance
    goal_bearing[room] = wp.vec2((c * to_goal[0] + s * to_goal[1]) / size, (c * to_goal[1] - s * to_goal[0]) / size)
    vel_body[room] = wp.vec2(c * v[0] + s * v[1], c * v[1] - s * v[0])
    omega[room] = v[2]
    length = trail.shape[1] // 2
    if begins:
        for slot in range(2 * length):
            trail[room, slot] = place
    slot = int(step[room]) % length
    trail[room, slot] = place
    trail[room, slot + length] = place
    now[room] = wp.int64((2 * room + 1) * length + slot)
