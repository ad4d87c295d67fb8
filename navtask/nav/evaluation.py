"""Frozen sets of rooms, and what a policy is worth on them."""

from dataclasses import replace

import mujoco
import numpy as np
import torch

from navtask import random
from navtask.evaluation import Evaluator, hash_drawn
from navtask.nav.env import NavEnv
from navtask.nav.geodesic import geodesic_lengths, resolution_for
from navtask.nav.lidar import Lidar
from navtask.nav.robot import ROBOT
from navtask.nav.scene import Rooms, build_model, first_obstacle_geom
from navtask.replay import Replay

HARDEST = 0.1
"""Share of rooms that count as the worst."""


class NavEvaluator(Evaluator):
    """Frozen rooms of a kind, under the task's own physics, sensors and limits.

    What each metric means, and its source, stands in ``navtask.nav.task``; times in s and lengths in m.
    """

    shares = frozenset({"success_rate", "collision_rate", "timeout_rate", "worst_decile_success"})
    env: NavEnv

    def __init__(self, env: NavEnv):
        super().__init__(env)
        rooms = env.config.rooms
        self.set_hash = hash_drawn((name, drawn) for name, drawn in env.rooms.tensors() if name != "failures")
        geodesic = geodesic_lengths(env.rooms, rooms, resolution_for(rooms))
        self.geodesic = geodesic.cpu().double()
        """(N,) shortest collision-free length from start to goal, m; infinite where there is none."""
        self.unreachable_share = self.geodesic.isinf().double().mean().item()
        straight = (env.rooms.goal - env.rooms.start[:, :2]).norm(dim=-1).cpu()
        detour = geodesic.cpu() / straight
        self._hardest = detour.argsort(descending=True, stable=True)[: max(1, round(HARDEST * env.num_envs))]

    def configuration(self) -> torch.Tensor:  # noqa: D102
        return self.env.truth.pose

    def replay(self, room: int, outcome: str, configurations: torch.Tensor) -> Replay:  # noqa: D102
        env, config = self.env, self.env.config
        model = build_model(config.rooms, config.physics_dt)
        first = first_obstacle_geom(model)
        obstacles = slice(first, first + env.rooms.centre.shape[1])
        for field, values in (("pos", env._geoms.pos), ("size", env._geoms.size), ("quat", env._geoms.quat)):
            getattr(model, f"geom_{field}")[obstacles] = values[room].cpu().numpy()
        model.geom_sameframe[obstacles] = mujoco.mjtSameFrame.mjSAMEFRAME_NONE  # they stand elsewhere than compiled
        poses = configurations.cpu()
        x, y = (length / 2 + 0.1 for length in config.rooms.size)
        return Replay(
            title=f"room {room}",
            outcome=outcome,
            model=model,
            qpos=poses.numpy(),
            trail=np.pad(poses[:, :2].numpy(), ((0, 0), (0, 1))),
            goal=np.append(env.rooms.goal[room].cpu().numpy(), 0.0),
            goal_radius=config.goal_radius,
            control_dt=config.control_dt,
            extent=(-x, x, -y, y),
            scan=self._beam_ends(room, poses),
        )

    def _beam_ends(self, room: int, poses: torch.Tensor) -> np.ndarray:
        """(T, beams, 2) where the beams of a scan without noise end, in the world, m."""
        num, config = len(poses), self.env.config
        same = {name: t[room].cpu().expand(num, *t.shape[1:]).contiguous() for name, t in self.env.rooms.tensors()}
        clean = replace(config.lidar, noise_std=0.0, dropout=0.0)
        nothing = torch.zeros(num, dtype=torch.int32)
        lidar = Lidar(clean, config.rooms, Rooms(**same), episode=nothing, step=nothing.long(), source=random.source(0))
        lidar.scan(torch.ones(num, dtype=torch.bool), poses)
        angles = poses[:, 2:] + torch.arange(config.lidar.beams) * (2 * torch.pi / config.lidar.beams)
        directions = torch.stack([angles.cos(), angles.sin()], dim=-1)
        return (poses[:, None, :2] + lidar.clean.unsqueeze(-1) * directions).numpy()

    def _begin(self) -> None:
        self._path = torch.zeros(self.env.num_envs, device=self.env.device)
        self._change = torch.zeros_like(self._path)
        self._closest = self.env.truth.clearance.clone()

    def _before_step(self) -> None:
        self._place = self.env.truth.pose[:, :2].clone()
        self._action = self.env.episode.action.clone()

    def _after_step(self, active: torch.Tensor) -> None:
        env = self.env
        self._path += active * (env.truth.pose[:, :2] - self._place).norm(dim=-1)
        self._closest = torch.where(active, torch.minimum(self._closest, env.truth.clearance), self._closest)
        # The first action has none before it that it could differ from.
        differs = active & (env.episode.step > 1)
        self._change += differs * (env.episode.action - self._action).square().sum(-1)

    def _measured(self, success: torch.Tensor, timeout: torch.Tensor, steps: torch.Tensor) -> dict[str, torch.Tensor]:
        shortest = self.geodesic
        best_time = shortest / ROBOT.v_max
        time = steps.double() * self.env.config.control_dt
        path = self._path.cpu().double()
        counts = success & shortest.isfinite()

        def weighted(ratio: torch.Tensor) -> torch.Tensor:
            return torch.where(counts, ratio, 0.0)

        def of_successes(values: torch.Tensor) -> torch.Tensor:
            return torch.where(success, values, torch.nan)

        worst = torch.full_like(time, torch.nan)
        worst[self._hardest] = success[self._hardest].double()
        return {
            "success_rate": success.double(),
            "collision_rate": (~success & ~timeout).double(),
            "timeout_rate": timeout.double(),
            "spl": weighted(shortest / torch.maximum(path, shortest)),
            "sct": weighted(best_time / torch.maximum(time, best_time)),
            "barn_score": weighted(best_time / time.clamp(2 * best_time, 8 * best_time)),
            "time_to_goal": of_successes(time),
            "path_length": of_successes(path),
            "min_clearance": (self._closest.cpu() - ROBOT.radius).double(),
            "action_change": self._change.cpu().double() / (steps - 1).clamp(min=1),
            "worst_decile_success": worst,
        }
