"""The navigation task as a vectorised environment."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import warp as wp
from tensordict import TensorDict

from navtask import random
from navtask.contract import Episode, RewardSum, VecTask, refilled
from navtask.description import Described, Shown
from navtask.kernels import Recorded
from navtask.nav.config import NavConfig
from navtask.nav.lidar import Lidar
from navtask.nav.rewards import RewardContext
from navtask.nav.robot import ROBOT
from navtask.nav.scene import GeomWriter, RoomDrawer, Rooms, Slots, build_model, first_obstacle_geom
from navtask.nav.sensing import Sensed, Truth, drive, read_pose
from navtask.physics import build_physics
from navtask.registry import OBSERVATIONS, REWARDS, ObservationTerm

ACTION_NAMES = ("vx", "vy", "wz")

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
        wp.init()
        self.config = config
        where = torch.device(device)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(num_envs, *shape, dtype=dtype, device=where)

        self._groups = _bind_observations(config, privileged)
        self._widths = {group: sum(width for _, width, _ in terms) for group, terms in self._groups.items()}
        reward, trail_length = _bind_rewards(config, where)
        super().__init__(
            num_envs=num_envs,
            num_actions=len(ACTION_NAMES),
            max_episode_length=round(config.episode_length / config.control_dt),
            episode=NavEpisode(
                number=zeros(dtype=torch.int32),
                step=zeros(dtype=torch.int64),
                age=zeros(dtype=torch.int64),
                reward_sums=zeros(len(reward.names)),
                action=zeros(3),
                trail=zeros(2 * (trail_length + 1), 2),
                frames=zeros(config.history if config.history > 1 else 0, self._widths["policy"]),
            ),
            reward=reward,
            reward_scale=config.reward_scale,
            auto_reset=auto_reset,
            device=where,
            cfg=config,
        )
        self.episode: NavEpisode
        self._draw_ages = partial(_launch_ages, seed=seed, stream=stream, first_room=first_room)

        slots = Slots.of(config.rooms)
        self.rooms = Rooms.empty(num_envs, slots, where)
        self._drawer = RoomDrawer(self.rooms, config.rooms, seed=seed, stream=stream, first_room=first_room)
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
            seed=seed,
            stream=stream,
            first_room=first_room,
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
            wp.vec3(ROBOT.v_max, ROBOT.v_max, ROBOT.omega_max),
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

    def spread_ages(self) -> None:
        """Let the first episodes be of random age, so that their time-outs don't come in one burst."""
        self.episode_length_buf = self._draw_ages(self.num_envs, self.max_episode_length, self.device)

    def _advance(self, actions: torch.Tensor, ends: torch.Tensor, finite: torch.Tensor) -> None:
        self._drive()  # reads ``actions``, which live in the books
        self.physics.step(self._ctrl, None if self.auto_reset else self.active)
        self._sense(self.active, begins=False)  # fills in ``ends`` and ``finite``
        frames = self.episode.frames
        if len(frames[0]):
            frames[:, :-1] = frames[:, 1:].clone()
            frames[:, -1] = self._frame("policy")

    def _sense(self, mask: torch.Tensor, *, begins: bool) -> None:
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
        """(N, width) this instant's terms of a group, each checked against its declared width."""
        values = []
        for name, width, term in self._groups[group]:
            value = term(self.sensed, self.truth)
            if value.shape != (self.num_envs, width):
                raise ValueError(
                    f"observation term '{name}' returned {tuple(value.shape)}; declared ({self.num_envs}, {width})"
                )
            values.append(value)
        return torch.cat(values, dim=-1)

    def _observe(self) -> TensorDict:
        frames = self.episode.frames
        groups = {"policy": frames.flatten(1).clone() if len(frames[0]) else self._frame("policy")}
        if "privileged" in self._groups:
            groups["privileged"] = self._frame("privileged")
        return TensorDict(groups, batch_size=self._batch_size, device=self.device)

    @property
    def drawing_failures(self) -> int:  # noqa: D102
        return int(self.rooms.failures.sum())

    def mirror_maps(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """How a left-right reflection of the world changes each observation group, and ``actions``: (index, sign),
        so that the mirrored vector is ``v[..., index] * sign``. Original and mirror are equally good experience."""
        maps = {"actions": (torch.arange(3), torch.tensor([1.0, -1.0, -1.0]))}
        for group, terms in self._groups.items():
            repeats = self.config.history if group == "policy" else 1
            index, sign, offset = [], [], 0
            for _ in range(repeats):
                for name, width, _term in terms:
                    term_index, term_sign = OBSERVATIONS[name].mirror_map(width)
                    index.append(term_index + offset)
                    sign.append(term_sign)
                    offset += width
            maps[group] = torch.cat(index), torch.cat(sign)
        return {name: (i.to(self.device), s.to(self.device)) for name, (i, s) in maps.items()}

    # -- as seen from outside ---------------------------------------------------------------------------------------

    def terms(self) -> dict[str, list[Shown]]:  # noqa: D102
        shown: dict[str, list[Shown]] = {}
        for group, terms in self._groups.items():
            start = (self.config.history - 1) * self._widths[group] if group == "policy" else 0
            shown[group] = []
            for name, width, _term in terms:
                ranges = OBSERVATIONS[name].mirror == "beams"
                shown[group].append(Shown(name, start, width, ranges, ANSWERS.get(name, ())))
                start += width
        return shown

    def scene(self) -> dict[str, torch.Tensor]:  # noqa: D102
        rooms = self.rooms
        obstacles = torch.cat([rooms.centre, rooms.half, rooms.axis], dim=-1)
        return {"body": self.physics.qpos.clone(), "goal": rooms.goal.clone(), "obstacles": obstacles}

    # -- exact resumption -------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:  # noqa: D102
        return {
            "episode": {name: tensor.clone() for name, tensor in self.episode.tensors().items()},
            "rooms": {name: tensor.clone() for name, tensor in self.rooms.tensors()},
            "physics": self.physics.state(),
            "statistics": {name: tensor.clone() for name, tensor in self._books.sums.items()},
            "active": self.active.clone(),
        }

    def load(self, state: dict[str, Any]) -> None:  # noqa: D102
        for name, tensor in self.episode.tensors().items():
            tensor.copy_(state["episode"][name])
        for name, tensor in self.rooms.tensors():
            tensor.copy_(state["rooms"][name])
        for name, tensor in self._books.sums.items():
            tensor.copy_(state["statistics"][name])
        self.active.copy_(state["active"])
        self.physics.load(state["physics"])
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self._sense(everywhere, begins=False)


Term = Callable[[Sensed, Truth], torch.Tensor]


def _bind_observations(config: NavConfig, privileged: bool) -> dict[str, list[tuple[str, int, Term]]]:
    """Enabled terms by group: name, declared width, and the function bound to its parameters."""
    groups: dict[str, list[tuple[str, int, Term]]] = {"policy": []}
    if privileged:
        groups["privileged"] = []
    for name, settings in config.observations.items():
        term = OBSERVATIONS.get(name, "task.observations")
        if settings.enabled and term.group in groups:
            groups[term.group].append((name, term.width_for(config), _bind(term, settings.params)))
    return groups


def _bind(term: ObservationTerm, params: dict[str, Any]) -> Term:
    """The one place that hands a term its sources: a DEPLOYABLE one never sees the truth."""
    if term.group == "policy":
        return lambda sensed, truth: term.function(sensed, **params)
    return lambda sensed, truth: term.function(sensed, truth, **params)


def _bind_rewards(config: NavConfig, device: torch.device) -> tuple[RewardSum, int]:
    """The reward and how many steps of trail its terms look back on."""
    names, terms, weights, trail = [], [], [], 0
    for name, settings in config.rewards.items():
        term = REWARDS.get(name, "task.rewards")
        names.append(name)
        terms.append(partial(term.function, **settings.params))
        weights.append(float(settings.weight))
        if term.trail is not None:
            trail = max(trail, settings.params.get(term.trail, term.default(term.trail)))
    return RewardSum(names, terms, torch.tensor(weights, device=device)), trail


@wp.kernel
def draw_ages(seed: int, stream: int, first_room: int, limit: int, ages: wp.array(dtype=wp.int64)):
    """Ages of first episodes, uniform on [0, limit)."""
    room = wp.tid()
    key = random.Key()
    key.seed = seed
    key.stream = stream
    key.room = first_room + room
    key.episode = 0
    ages[room] = wp.int64(random.uniform4(key, random.AGES, 0)[0] * float(limit))


def _launch_ages(num: int, limit: int, device: torch.device, **key: int) -> torch.Tensor:
    ages = torch.zeros(num, dtype=torch.int64, device=device)
    inputs = [key["seed"], key["stream"], key["first_room"], limit, wp.from_torch(ages)]
    wp.launch(draw_ages, dim=num, inputs=inputs, device=str(device))
    return ages
