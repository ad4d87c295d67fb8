"""What the arm is: read from ``arm.xml``, so that there is one place for its numbers; and where its tool is."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import torch
import warp as wp

from navtask.kernels import start_warp

wp.set_module_options({"enable_backward": False})

ARM_XML = Path(__file__).with_name("arm.xml")

JOINTS = 6
vec6 = wp.types.vector(length=JOINTS, dtype=wp.float32)


@wp.struct
class Chain:
    """Hinges in a row: ``offset[j]`` leads from hinge j - 1 to hinge j, in the frame that hinge j - 1 turns; the last
    of the seven leads to the tool. All frames are parallel at angles of zero."""

    offset: wp.types.matrix(shape=(JOINTS + 1, 3), dtype=wp.float32)
    axis: wp.types.matrix(shape=(JOINTS, 3), dtype=wp.float32)
    lower: vec6
    upper: vec6


@dataclass(frozen=True)
class Arm:
    """Geometry and limits of the arm."""

    joints: tuple[str, ...]
    home: np.ndarray
    """(6,) angles of the keyframe ``home``, rad."""
    lower: np.ndarray
    upper: np.ndarray
    """(6,) limits of the joints, rad."""
    v_max: float
    """Greatest commanded speed of every joint, rad/s."""
    offsets: np.ndarray
    """(7, 3) from the floor to the first hinge, from hinge to hinge, and to the tool, m."""
    axes: np.ndarray
    """(6, 3) unit vectors."""

    @property
    def shoulder(self) -> np.ndarray:
        """(3,) the point about which all but the first joint, whose axis it lies on, move the tool, m."""
        return self.offsets[:2].sum(0)

    @property
    def reach(self) -> float:
        """No point that the tool reaches lies further from the shoulder, m."""
        return float(np.linalg.norm(self.offsets[2:], axis=1).sum())

    def chain(self) -> Chain:
        """For kernels."""
        chain = Chain()
        chain.offset, chain.axis, chain.lower, chain.upper = self.offsets, self.axes, self.lower, self.upper
        return chain


def build_model(physics_dt: float) -> mujoco.MjModel:
    """The arm with steps of ``physics_dt`` s."""
    model = mujoco.MjModel.from_xml_path(str(ARM_XML))
    model.opt.timestep = physics_dt
    return model


@cache
def read_arm() -> Arm:
    """The arm of ``arm.xml``; ValueError where it isn't what ``tool_point`` takes for granted."""
    model = mujoco.MjModel.from_xml_path(str(ARM_XML))
    limits = model.actuator_ctrlrange
    straight = (model.jnt_pos == 0).all() and (model.body_quat == (1, 0, 0, 0)).all() and model.nq == JOINTS
    if not straight or (model.jnt_type != mujoco.mjtJoint.mjJNT_HINGE).any():
        raise ValueError(f"{ARM_XML.name}: needs {JOINTS} hinges at the origins of bodies that are not turned")
    if (limits != limits[0, 1] * np.array([-1, 1])).any():
        raise ValueError(f"{ARM_XML.name}: all joints need the same ctrlrange, as wide to either side")
    tool = model.site("tool")
    return Arm(
        joints=tuple(model.joint(i).name for i in range(JOINTS)),
        home=model.key("home").qpos.copy(),
        lower=model.jnt_range[:, 0].copy(),
        upper=model.jnt_range[:, 1].copy(),
        v_max=float(limits[0, 1]),
        offsets=np.vstack([model.body_pos[model.jnt_bodyid], tool.pos]),
        axes=model.jnt_axis.copy(),
    )


@wp.func
def turned(axis: wp.vec3, angle: float, v: wp.vec3):
    """``v`` turned about a unit vector (Rodrigues 1840)."""
    c = wp.cos(angle)
    return v * c + wp.cross(axis, v) * wp.sin(angle) + axis * (wp.dot(axis, v) * (1.0 - c))


@wp.func
def tool_point(chain: Chain, q: vec6):
    """Where the tool is, m, at angles ``q``: p_j = offset_j + R(axis_j, q_j) p_(j+1), from the tool to the floor."""
    p = chain.offset[6]
    for k in range(6):
        j = 5 - k
        p = chain.offset[j] + turned(chain.axis[j], q[j], p)
    return p


@wp.func
def tool_velocity(chain: Chain, q: vec6, joint: int):
    """A column of the tool's Jacobian: how it moves when hinge ``joint`` alone turns by 1 rad/s, m/s."""
    p = chain.offset[6]
    for k in range(6):
        j = 5 - k
        turn = turned(chain.axis[j], q[j], p)
        if j > joint:
            p = chain.offset[j] + turn
        if j == joint:
            p = wp.cross(chain.axis[j], turn)
        if j < joint:
            p = turned(chain.axis[j], q[j], p)
    return p


@wp.func
def step_towards(chain: Chain, q: vec6, error: wp.vec3):
    """Change of the angles that moves the tool by ``error``, as far as a straight line tells: damped least squares,
    dq = J' (J J' + lambda^2 I)^-1 e (Wampler 1986)."""
    gram = wp.identity(n=3, dtype=wp.float32) * 1.0e-3
    for j in range(6):
        v = tool_velocity(chain, q, j)
        gram = gram + wp.outer(v, v)
    pull = wp.inverse(gram) * error
    dq = vec6()
    for j in range(6):
        dq[j] = wp.dot(tool_velocity(chain, q, j), pull)
    return dq


@wp.kernel
def place_tools(chain: Chain, posture: wp.array(dtype=vec6), tool: wp.array(dtype=wp.vec3)):
    """``tool_point`` of many postures."""
    i = wp.tid()
    tool[i] = tool_point(chain, posture[i])


@wp.kernel
def solve_postures(
    chain: Chain,
    home: vec6,
    target: wp.array(dtype=wp.vec3),
    iterations: int,
    # out
    posture: wp.array(dtype=vec6),
    miss: wp.array(dtype=wp.float32),
):
    """Inverse kinematics, within the joints' limits."""
    i = wp.tid()
    q = home
    for _iteration in range(iterations):
        q = q + step_towards(chain, q, target[i] - tool_point(chain, q))
        q = wp.min(wp.max(q, chain.lower), chain.upper)
    posture[i] = q
    miss[i] = wp.length(target[i] - tool_point(chain, q))


def forward_kinematics(postures: torch.Tensor) -> torch.Tensor:
    """Where the tool is (N, 3), m, at ``postures`` (N, 6), rad."""
    start_warp()
    tool = torch.zeros(len(postures), 3, device=postures.device)
    inputs = [read_arm().chain(), wp.from_torch(postures.contiguous(), dtype=vec6), wp.from_torch(tool, dtype=wp.vec3)]
    wp.launch(place_tools, dim=len(postures), inputs=inputs, device=str(postures.device))
    return tool


def inverse_kinematics(targets: torch.Tensor, iterations: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Postures (N, 6) within the joints' limits that bring the tool to ``targets`` (N, 3), and by how much they miss
    (N,), m. A search downhill from the home posture: what it misses may still be within reach, the other way round."""
    start_warp()
    arm = read_arm()
    posture = torch.zeros(len(targets), JOINTS, device=targets.device)
    miss = torch.zeros(len(targets), device=targets.device)
    wp.launch(
        solve_postures,
        dim=len(targets),
        inputs=[
            arm.chain(),
            vec6(arm.home),
            wp.from_torch(targets.contiguous(), dtype=wp.vec3),
            iterations,
            wp.from_torch(posture, dtype=vec6),
            wp.from_torch(miss),
        ],
        device=str(targets.device),
    )
    return posture, miss
