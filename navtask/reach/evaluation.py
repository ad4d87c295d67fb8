"""Frozen sets of targets, and what a policy is worth on them."""

import torch

from navtask.evaluation import Evaluator, hash_drawn
from navtask.reach.arm import build_model, forward_kinematics, inverse_kinematics
from navtask.reach.env import ReachEnv
from navtask.replay import Replay


class ReachEvaluator(Evaluator):
    """Frozen targets of a kind, each with its start posture, under the task's own physics and limits.

    What each metric means, and its source, stands in ``navtask.reach.task``; times in s and lengths in m.
    """

    shares = frozenset({"success_rate", "timeout_rate"})
    env: ReachEnv

    def __init__(self, env: ReachEnv):
        super().__init__(env)
        self.set_hash = hash_drawn(env.targets.tensors().items())
        _, miss = inverse_kinematics(env.targets.target)
        self.unreachable_share = (miss >= env.config.goal_radius).double().mean().item()
        self._straight = env.sensed.distance.cpu().double()

    def configuration(self) -> torch.Tensor:  # noqa: D102
        return self.env.sensed.joint_pos

    def replay(self, room: int, outcome: str, configurations: torch.Tensor) -> Replay:
        """Seen from the side, along the y axis."""
        config = self.env.config
        postures = configurations.cpu()
        return Replay(
            title=f"room {room}",
            outcome=outcome,
            model=build_model(config.physics_dt),
            qpos=postures.numpy(),
            trail=forward_kinematics(postures).numpy(),
            goal=self.env.targets.target[room].cpu().numpy(),
            goal_radius=config.goal_radius,
            control_dt=config.control_dt,
            extent=(-0.3, 0.7, 0.0, 1.0),
            axes=(0, 2),
        )

    def _begin(self) -> None:
        self._path, self._change, self._effort = torch.zeros(3, self.env.num_envs, device=self.env.device)

    def _before_step(self) -> None:
        self._tool = self.env.sensed.tool.clone()
        self._action = self.env.episode.action.clone()

    def _after_step(self, active: torch.Tensor) -> None:
        env = self.env
        self._path += active * (env.sensed.tool - self._tool).norm(dim=-1)
        self._effort += active * env.episode.action.square().sum(-1)
        # The first action has none before it that it could differ from.
        differs = active & (env.episode.step > 1)
        self._change += differs * (env.episode.action - self._action).square().sum(-1)

    def _measured(self, success: torch.Tensor, timeout: torch.Tensor, steps: torch.Tensor) -> dict[str, torch.Tensor]:
        path = self._path.cpu().double()

        def of_successes(values: torch.Tensor) -> torch.Tensor:
            return torch.where(success, values, torch.nan)

        return {
            "success_rate": success.double(),
            "timeout_rate": timeout.double(),
            "spl": success * self._straight / torch.maximum(path, self._straight),
            "time_to_goal": of_successes(steps.double() * self.env.config.control_dt),
            "path_length": of_successes(path),
            "final_distance": self.env.sensed.distance.cpu().double(),
            "effort": self._effort.cpu().double() / steps.clamp(min=1),
            "action_change": self._change.cpu().double() / (steps - 1).clamp(min=1),
        }
