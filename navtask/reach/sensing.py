"""What is known at one instant: everything here a real arm has, from its joints' encoders and the task it is given."""

from dataclasses import dataclass

import torch
import warp as wp

from navtask.reach.arm import Chain, tool_point, vec6

wp.set_module_options({"enable_backward": False})


@dataclass
class Sensed:
    """Live tensors, refreshed once an instant; terms must not keep or change them."""

    joint_pos: torch.Tensor
    """(N, 6) angles, rad; finite always."""
    joint_vel: torch.Tensor
    """(N, 6) rad/s."""
    tool: torch.Tensor
    """(N, 3) where the tool is by the arm's geometry, in the base's frame, m."""
    to_target: torch.Tensor
    """(N, 3) from the tool to the target, m."""
    distance: torch.Tensor
    """(N,) m."""
    action: torch.Tensor
    """(N, 6) the last clipped action."""
    home: torch.Tensor
    """(6,) angles of the home posture, rad."""
    v_max: float
    goal_distance_scale: float


@wp.kernel
def command(
    # which rooms
    active: wp.array(dtype=wp.bool),
    # in
    actions: wp.array2d(dtype=wp.float32),
    v_max: float,
    # in and out
    action: wp.array2d(dtype=wp.float32),
    # out
    action_before: wp.array2d(dtype=wp.float32),
    ctrl: wp.array2d(dtype=wp.float32),
):
    """Turn actions into the speeds that the joints are told, rad/s, and keep what the next instant is compared to."""
    room = wp.tid()
    if not active[room]:
        return
    for joint in range(actions.shape[1]):
        action_before[room, joint] = action[room, joint]
        action[room, joint] = actions[room, joint]
        ctrl[room, joint] = actions[room, joint] * v_max


@wp.kernel
def read_arm_state(
    # which rooms
    mask: wp.array(dtype=wp.bool),
    # in
    qpos: wp.array(dtype=vec6),
    qvel: wp.array(dtype=vec6),
    target: wp.array(dtype=wp.vec3),
    chain: Chain,
    goal_radius: float,
    # out
    finite: wp.array(dtype=wp.bool),
    ends: wp.array2d(dtype=wp.bool),
    joint_pos: wp.array(dtype=vec6),
    joint_vel: wp.array(dtype=vec6),
    tool: wp.array(dtype=wp.vec3),
    to_target: wp.array(dtype=wp.vec3),
    distance: wp.array(dtype=wp.float32),
):
    """Readings of the masked rooms; where the state is not finite the last reading stays. ``ends``: success."""
    room = wp.tid()
    if not mask[room]:
        return
    q = qpos[room]
    v = qvel[room]
    sane = bool(True)
    for j in range(6):
        sane = sane and wp.isfinite(q[j]) and wp.isfinite(v[j])
    finite[room] = sane
    if not sane:
        return
    point = tool_point(chain, q)
    difference = target[room] - point
    joint_pos[room] = q
    joint_vel[room] = v
    tool[room] = point
    to_target[room] = difference
    distance[room] = wp.length(difference)
    ends[room, 0] = wp.length(difference) < goal_radius
