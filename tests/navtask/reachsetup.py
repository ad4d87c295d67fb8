"""How tests come by the reaching task: settings from ``conf/``, targets drawn or made by hand."""

from dataclasses import replace
from pathlib import Path

import mujoco
import torch
import yaml

from navtask.config import ObservationTermConfig, RewardTermConfig
from navtask.reach.arm import build_model
from navtask.reach.config import ReachConfig, TargetsConfig
from navtask.reach.env import ReachEnv

CONF = Path(__file__).parents[2] / "conf" / "task"
PRESETS = ("box", "wide")


def load_targets(preset="box", **changes):
    """The settings of a preset, but for the changes."""
    return replace(TargetsConfig(**yaml.safe_load((CONF / "targets" / f"{preset}.yaml").read_text())), **changes)


def load_reach(preset="box", **changes):
    """The task's settings, but for the changes."""
    raw = yaml.safe_load((CONF / "reach.yaml").read_text())
    raw.pop("defaults")
    raw["targets"] = load_targets(preset)
    raw["observations"] = {name: ObservationTermConfig(**term) for name, term in raw["observations"].items()}
    raw["rewards"] = {name: RewardTermConfig(**term) for name, term in raw["rewards"].items()}
    return replace(ReachConfig(**raw), **changes)


def make_reach(config=None, num_envs=8, **settings):
    """A task with seed 0 unless told otherwise."""
    return ReachEnv(config or load_reach(), num_envs=num_envs, **{"seed": 0, **settings})


def use_targets(env, *, start=None, target=None):
    """Let every episode of ``env`` start and end there, and begin anew."""
    draw = env._draw

    def draw_these():
        draw()
        for name, given in (("start", start), ("target", target)):
            if given is not None:
                env.targets.tensors()[name][:] = torch.as_tensor(given, dtype=torch.float32)

    env._draw = draw_these
    env.restart()


def towards_target(env):
    """Resolved-rate control (Whitney 1969): the joint speeds that move the tool straight to its target, the fastest of
    them at its limit. By the engine's Jacobian."""
    model = build_model(env.config.physics_dt)
    data = mujoco.MjData(model)
    jacobian = torch.zeros(env.num_envs, 3, model.nv, dtype=torch.float64)
    for room, q in enumerate(env.sensed.joint_pos.double().numpy()):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, jacobian[room].numpy(), None, 0)
    speeds = torch.linalg.pinv(jacobian) @ env.sensed.to_target.double().unsqueeze(-1)
    return (speeds / speeds.abs().amax(1, keepdim=True)).squeeze(-1).float()
