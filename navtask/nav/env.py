"""The navigation task as a vectorised environment."""

from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from tensordict import TensorDict

from navtask import random
from navtask.binding import MirrorMap, ObservationGroups, bind_rewards, trail_length
from navtask.contract import Episode, VecTask, refilled
from navtask.description import Described, Shown
from navtask.interface import Axis, describe
from navtask.kernels import Recorded, start_warp
from navtask.nav.config import NavConfig
from navtask.nav.lidar import Lidar
from navtask.nav.rewards import RewardContext
from navtask.nav.robot import ROBOT
from navtask.nav.scene import GeomWriter, RoomDrawer, Rooms, Slots, build_model, first_obstacle_geom
from navtask.nav.sensing import Sensed, Truth, drive, read_pose
from navtask.nav.terms import TERMS
from navtask.physics import build_physics

AXES = (
    Axis("vx", "m/s", ROBOT.v_max, "forward speed, in the body's frame"),
    Axis("vy", "m/s", ROBOT.v_max, "left speed, in the body's frame"),
    Axis("wz", "rad/s", ROBOT.omega_max, "yaw rate, counter-clockwise"),
)
ACTION_NAMES = tuple(axis.name for axis in AXES)

ANSWERS = {"vel_body": ("vx", "vy"), "omega": ("wz",)}
"""Terms that show what an action has led to, each value in units of the greatest command."""


@dataclass
class NavEpisode(Episode):
    """What a navigation episode carries."""

    action: torch.Tensor
    """(N, 3) the last clipped action."""
    trail: torch.Tensor = refilled()
    """(N, 2 (L + 1), 2) the last places, m; see ``read_pose``."""
    frames: torch.Tensor = refilled()
    """(N, history, width) the last ``policy`` observations, the newest last; empty where only the last one is shown."""


class NavEnv(VecTask, Described):
    """N rooms, each with a robot, obstacles and a goal; a new room each episode.

    Observation groups: ``policy`` (DEPLOYABLE terms) and, with ``privileged``, ``privileged`` (SIM_ONLY terms).
    Room ``i`` is room ``first_room + i`` of ``seed``: what it draws depends on nothing else.
    """

    config: NavConfig
    ends = ("collision", "out_of_bounds", "success")
    action_names = ACTION_NAMES

    def __init__(
        self,
        config: NavConfig,
        *,
        num_envs: int,
        seed: int,
        device: str = "cpu",
        backend: str = "mujoco_c",
        threads: int = 1,
        privileged: bool = False,
        auto_reset: bool = True,
        stream: int = 0,
        first_room: int = 0,
    ):
        start_warp()
        where = torch.device(device)
        source = random.source(seed, stream, first_room)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(num_envs, *shape, dtype=dtype, device=where)

        self._observation = ObservationGroups(TERMS.observations, config, num_envs, privileged=privileged)
        reward = bind_rewards(TERMS.rewards, config.rewards, where)
        trail = trail_length(TERMS.rewards, config.rewards)
        super().__init__(
            config,
            num_envs=num_envs,
            num_actions=len(ACTION_NAMES),
            episode=NavEpisode(
                number=zeros(dtype=torch.int32),
                step=zeros(dtype=torch.int64),
                age=zeros(dtype=torch.int64),
                reward_sums=zeros(len(reward.names)),
                action=zeros(3),
                trail=zeros(2 * (trail + 1), 2),
                frames=zeros(config.history if config.history > 1 else 0, self._observation.width("policy")),
            ),
            reward=reward,
            auto_reset=auto_reset,
            device=where,
            source=source,
        )
        self.episode: NavEpisode

        slots = Slots.of(config.rooms)
        self.rooms = Rooms.empty(num_envs, slots, where)
        self._drawer = RoomDrawer(self.rooms, config.rooms, source)
        self._geoms = GeomWriter(self.rooms, slots)
        model = build_model(config.rooms, config.physics_dt)
        self._first_geom = first_obstacle_geom(model)
        substeps = round(config.control_dt / config.physics_dt)
        self.physics = build_physics(backend, model, num_envs, substeps=substeps, threads=threads, device=device)

        self._lidar = Lidar(
            config.lidar,
            config.rooms,
            self.rooms,
            episode=self.episode.number,
            step=self.episode.step,
            source=source,
            threads=threads,
        )
        self.sensed = Sensed(
            scan=self._lidar.noisy,
            goal_distance=zeros(),
            goal_bearing=zeros(2),
            vel_body=zeros(2),
            omega=zeros(),
            action=self.episode.action,
            shortest=self._lidar.shortest,
            max_range=config.lidar.max_range,
            goal_distance_scale=config.goal_distance_scale,
            v_max=ROBOT.v_max,
            omega_max=ROBOT.omega_max,
        )
        self.truth = Truth(
            pose=zeros(3),
            scan_clean=self._lidar.clean,
            clearance=self._lidar.clearance,
            nearest=self._lidar.nearest,
            touching=self.physics.touching,
        )
        self._now = zeros(dtype=torch.int64)
        self._mask = zeros(dtype=torch.bool)
        self._read_pose = {begins: self._pose_reading(begins) for begins in (False, True)}
        self._batch_size = torch.Size([num_envs])
        self._ctrl = zeros(3)
        self._distance_before = zeros()
        self._action_before = zeros(3)
        driving = [
            self._books.active,
            self._books.clipped,
            self.truth.pose,
            self.sensed.omega,
            self.sensed.goal_distance,
            wp.vec3(*(axis.scale for axis in AXES)),
            config.control_dt,
            ROBOT.lag,
            self.episode.action,
            self._action_before,
            self._distance_before,
            self._ctrl,
        ]
        self._drive = Recorded(where, (drive, num_envs, driving))
        self._reset(torch.ones(num_envs, dtype=torch.bool, device=where))

    def _pose_reading(self, begins: bool) -> Recorded:
        """The launch of ``read_pose``, for rooms whose episode begins or for those under way."""
        reading = [
            self._mask,
            begins,
            self.physics.qpos,
            self.physics.qvel,
            self.rooms.goal,
            self.episode.step,
            self.physics.touching,
            wp.vec2(self.config.rooms.size[0] / 2, self.config.rooms.size[1] / 2),
            self.config.goal_radius,
            self._books.finite,
            self._books.ends,
            self.truth.pose,
            self.sensed.goal_distance,
            self.sensed.goal_bearing,
            self.sensed.vel_body,
            self.sensed.omega,
            self.episode.trail,
            self._now,
        ]
        return Recorded(self.device, (read_pose, self.num_envs, reading))

    # -- the task ---------------------------------------------------------------------------------------------------

    def _advance(self, actions: torch.Tensor, ends: torch.Tensor, finite: torch.Tensor) -> None:
        self._drive()  # reads ``actions``, which live in the books
        self.physics.step(self._ctrl, None if self.auto_reset else self.active)
        self._sense(self.active)  # fills in ``ends`` and ``finite``
        frames = self.episode.frames
        if len(frames[0]):
            frames[:, :-1] = frames[:, 1:].clone()
            frames[:, -1] = self._frame("policy")

    def _sense(self, mask: torch.Tensor, *, begins: bool = False) -> None:
        self._mask.copy_(mask)
        self._read_pose[begins]()
        self._lidar.scan(mask, self.truth.pose, few=begins)

    def _reward_context(self, cause: torch.Tensor) -> RewardContext:
        _, collision, outside, success, truncated = cause.unbind(-1)
        return RewardContext(
            sensed=self.sensed,
            truth=self.truth,
            action=self.episode.action,
            action_before=self._action_before,
            goal_distance_before=self._distance_before,
            success=success,
            collision=collision,
            truncated=truncated,
            out_of_bounds=outside,
            trail=self.episode.trail,
            now=self._now,
            step=self.episode.step,
        )

    def _reset(self, mask: torch.Tensor) -> None:
        self._drawer.draw(mask, self.episode.number)
        self._geoms.write(mask)
        self.physics.set_geoms(mask, self._first_geom, self._geoms.pos, self._geoms.size, self._geoms.quat)
        self.physics.reset(mask, self.rooms.start)
        self._sense(mask, begins=True)
        frames = self.episode.frames
        if len(frames[0]):
            frame = self._frame("policy").unsqueeze(1)
            frames.copy_(torch.where(mask.view(-1, 1, 1), frame, frames))

    def _frame(self, group: str) -> torch.Tensor:
        """(N, width) this instant's terms of a group."""
        return self._observation.read(group, self.sensed, self.truth)

    def _drawn(self) -> dict[str, torch.Tensor]:
        return dict(self.rooms.tensors())

    def _observe(self) -> TensorDict:
        frames = self.episode.frames
        groups = {"policy": frames.flatten(1).clone() if len(frames[0]) else self._frame("policy")}
        if "privileged" in self._observation.names:
            groups["privileged"] = self._frame("privileged")
        return TensorDict(groups, batch_size=self._batch_size, device=self.device)

    @property
    def drawing_failures(self) -> int:  # noqa: D102
        return int(self.rooms.failures.sum())

    def mirror_maps(self) -> dict[str, MirrorMap]:
        """How a left-right reflection of the world changes each observation group, and ``actions``: (index, sign),
        so that the mirrored vector is ``v[..., index] * sign``. Original and mirror are equally good experience."""
        maps = {"actions": (torch.arange(3), torch.tensor([1.0, -1.0, -1.0]))}
        for group in self._observation.names:
            frames = self.config.history if group == "policy" else 1
            index, sign = self._observation.mirror_map(group)
            starts = torch.arange(frames).unsqueeze(-1) * len(index)
            maps[group] = (starts + index).flatten(), sign.repeat(frames)
        return {name: (i.to(self.device), s.to(self.device)) for name, (i, s) in maps.items()}

    # -- as seen from outside ---------------------------------------------------------------------------------------

    def interface(self) -> dict[str, Any]:  # noqa: D102
        config = self.config
        return describe(
            config.name,
            self._observation.measured("policy"),
            AXES,
            control_dt=config.control_dt,
            goal_radius=config.goal_radius,
            history=config.history,
        )

    def terms(self) -> dict[str, list[Shown]]:  # noqa: D102
        shown: dict[str, list[Shown]] = {}
        for group in self._observation.names:
            older = (self.config.history - 1) * self._observation.width(group) if group == "policy" else 0
            shown[group] = [
                Shown(term.name, older + start, width, term.mirror == "beams", ANSWERS.get(term.name, ()))
                for term, start, width in self._observation.layout(group)
            ]
        return shown

    def scene(self) -> dict[str, torch.Tensor]:  # noqa: D102
        rooms = self.rooms
        obstacles = torch.cat([rooms.centre, rooms.half, rooms.axis], dim=-1)
        return {"body": self.physics.qpos.clone(), "goal": rooms.goal.clone(), "obstacles": obstacles}
