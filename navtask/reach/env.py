"""The reaching task as a vectorised environment."""

from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from tensordict import TensorDict

from navtask import random
from navtask.binding import MirrorMap, ObservationGroups, bind_rewards
from navtask.contract import Episode, VecTask
from navtask.description import Described, Shown
from navtask.interface import Axis, describe
from navtask.kernels import Recorded, start_warp
from navtask.physics import build_physics
from navtask.reach.arm import JOINTS, build_model, read_arm, vec6
from navtask.reach.config import ReachConfig
from navtask.reach.observations import MIRROR
from navtask.reach.rewards import RewardContext
from navtask.reach.sensing import Sensed, command, read_arm_state
from navtask.reach.targets import Targets, draw_targets
from navtask.reach.terms import TERMS


@dataclass
class ReachEpisode(Episode):
    """What a reaching episode carries."""

    action: torch.Tensor
    """(N, 6) the last clipped action."""


class ReachEnv(VecTask, Described):
    """N arms, each with a target; a new target and a new start posture each episode.

    An action is the speed of each joint, as a share of the greatest. There is one observation group, ``policy``: what
    there is to know a real arm has. Room ``i`` is room ``first_room + i`` of ``seed``: what it draws depends on nothing
    else.
    """

    config: ReachConfig
    ends = ("success",)
    action_names = read_arm().joints

    def __init__(
        self,
        config: ReachConfig,
        *,
        num_envs: int,
        seed: int,
        device: str = "cpu",
        backend: str = "mujoco_c",
        threads: int = 1,
        auto_reset: bool = True,
        stream: int = 0,
        first_room: int = 0,
    ):
        start_warp()
        where = torch.device(device)
        source = random.source(seed, stream, first_room)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(num_envs, *shape, dtype=dtype, device=where)

        self._observation = ObservationGroups(TERMS.observations, config, num_envs)
        reward = bind_rewards(TERMS.rewards, config.rewards, where)
        super().__init__(
            config,
            num_envs=num_envs,
            num_actions=JOINTS,
            episode=ReachEpisode(
                number=zeros(dtype=torch.int32),
                step=zeros(dtype=torch.int64),
                age=zeros(dtype=torch.int64),
                reward_sums=zeros(len(reward.names)),
                action=zeros(JOINTS),
            ),
            reward=reward,
            auto_reset=auto_reset,
            device=where,
            source=source,
        )
        self.episode: ReachEpisode
        self.targets = Targets.empty(num_envs, where)
        substeps = round(config.control_dt / config.physics_dt)
        self.physics = build_physics(
            backend, build_model(config.physics_dt), num_envs, substeps=substeps, threads=threads, device=device
        )
        arm = read_arm()
        self.sensed = Sensed(
            joint_pos=zeros(JOINTS),
            joint_vel=zeros(JOINTS),
            tool=zeros(3),
            to_target=zeros(3),
            distance=zeros(),
            action=self.episode.action,
            home=torch.tensor(arm.home, dtype=torch.float32, device=where),
            v_max=arm.v_max,
            goal_distance_scale=config.goal_distance_scale,
        )
        self._action_before = zeros(JOINTS)
        self._ctrl = zeros(JOINTS)
        self._mask = zeros(dtype=torch.bool)
        commanding = [
            self._books.active,
            self._books.clipped,
            arm.v_max,
            self.episode.action,
            self._action_before,
            self._ctrl,
        ]
        self._command = Recorded(where, (command, num_envs, commanding))
        reading = [
            self._mask,
            self.physics.qpos,
            self.physics.qvel,
            self.targets.target,
            arm.chain(),
            config.goal_radius,
            self._books.finite,
            self._books.ends,
            self.sensed.joint_pos,
            self.sensed.joint_vel,
            self.sensed.tool,
            self.sensed.to_target,
            self.sensed.distance,
        ]
        self._read = Recorded(where, (read_arm_state, num_envs, reading))
        drawing = [
            self._mask,
            self.episode.number,
            source,
            wp.vec3(config.targets.centre),
            wp.vec3(config.targets.half_size),
            vec6(arm.home),
            config.targets.start_spread,
            self.targets.start,
            self.targets.target,
        ]
        self._draw = Recorded(where, (draw_targets, num_envs, drawing))
        self._reset(torch.ones(num_envs, dtype=torch.bool, device=where))

    # -- the task ---------------------------------------------------------------------------------------------------

    def _advance(self, actions: torch.Tensor, ends: torch.Tensor, finite: torch.Tensor) -> None:
        self._command()  # reads ``actions``, which live in the books
        self.physics.step(self._ctrl, None if self.auto_reset else self.active)
        self._sense(self.active)  # fills in ``ends`` and ``finite``

    def _sense(self, mask: torch.Tensor) -> None:
        self._mask.copy_(mask)
        self._read()

    def _reward_context(self, cause: torch.Tensor) -> RewardContext:
        _, success, _ = cause.unbind(-1)
        return RewardContext(
            sensed=self.sensed,
            action=self.episode.action,
            action_before=self._action_before,
            success=success,
        )

    def _reset(self, mask: torch.Tensor) -> None:
        self._mask.copy_(mask)
        self._draw()
        self.physics.reset(mask, self.targets.start)
        self._read()

    def _drawn(self) -> dict[str, torch.Tensor]:
        return self.targets.tensors()

    def _observe(self) -> TensorDict:
        policy = self._observation.read("policy", self.sensed)
        return TensorDict({"policy": policy}, batch_size=[self.num_envs], device=self.device)

    def mirror_maps(self) -> dict[str, MirrorMap]:
        """How a reflection in the plane y = 0, in which the arm stands at home, changes the observation group, and
        ``actions``: (index, sign), so that the mirrored vector is ``v[..., index] * sign``."""
        actions = torch.arange(JOINTS), torch.tensor([float(sign) for sign in MIRROR])
        maps = {"actions": actions, "policy": self._observation.mirror_map("policy")}
        return {name: (i.to(self.device), s.to(self.device)) for name, (i, s) in maps.items()}

    # -- as seen from outside ---------------------------------------------------------------------------------------

    def interface(self) -> dict[str, Any]:  # noqa: D102
        axes = [Axis(joint, "rad/s", read_arm().v_max, f"speed of the joint {joint}") for joint in self.action_names]
        config, terms = self.config, self._observation.measured("policy")
        return describe(config.name, terms, axes, control_dt=config.control_dt, goal_radius=config.goal_radius)

    def terms(self) -> dict[str, list[Shown]]:  # noqa: D102
        answers = {"joint_vel": self.action_names}
        shown = [
            Shown(term.name, start, width, answers=answers.get(term.name, ()))
            for term, start, width in self._observation.layout("policy")
        ]
        return {"policy": shown}

    def scene(self) -> dict[str, torch.Tensor]:  # noqa: D102
        return {"body": self.physics.qpos.clone(), "goal": self.targets.target.clone()}
