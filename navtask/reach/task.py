"""The reaching task from outside."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from navtask.reach.config import ReachConfig, validate, validate_targets
from navtask.tasks import TaskDefinition

if TYPE_CHECKING:
    from navtask.evaluation import Policy
    from navtask.reach.env import ReachEnv
    from navtask.reach.evaluation import ReachEvaluator


class Reach(TaskDefinition):
    """A six-axis arm brings its tool to a point."""

    name = "reach"
    config = ReachConfig
    world = "targets"
    metrics = MappingProxyType(
        {
            "success_rate": "share of targets that the tool reaches within the time limit",
            "timeout_rate": "share of targets that the time limit ends; the rest are arms whose state diverged",
            "spl": "success weighted by path length, l / max(p, l): p the tool's path, l the straight line to the "
            "target; ending within goal_radius of it forgives a detour of that much (Anderson et al. 2018, "
            "arXiv:1807.06757)",
            "time_to_goal": "mean of the successes, s",
            "path_length": "of the tool, mean of the successes, m",
            "final_distance": "from the tool to the target at the end, mean over all, m",
            "effort": "mean |a(t)|^2 of an episode, mean over all",
            "action_change": "mean squared change of action, |a(t) - a(t-1)|^2, of an episode, mean over all",
        }
    )
    better = MappingProxyType(
        dict.fromkeys(metrics, "more")
        | dict.fromkeys(
            ("timeout_rate", "time_to_goal", "path_length", "final_distance", "effort", "action_change"), "less"
        )
    )
    causes = ("diverged", "success", "timeout")
    groups = ("policy",)
    symmetric = True
    planners = ("resolved_rate",)

    def validate(self, config: ReachConfig) -> None:
        """See TaskDefinition."""
        validate(config)

    def validate_world(self, world: Any, key: str) -> None:
        """See TaskDefinition."""
        validate_targets(world, key)

    def make_env(self, config: ReachConfig, *, privileged: bool = False, **settings: Any) -> "ReachEnv":
        """See TaskDefinition."""
        from navtask.reach.env import ReachEnv

        assert not privileged, "there is no such group"
        return ReachEnv(config, **settings)

    def evaluator(self, env: "ReachEnv") -> "ReachEvaluator":
        """See TaskDefinition."""
        from navtask.reach.evaluation import ReachEvaluator

        return ReachEvaluator(env)

    def make_planner(self, name: str, config: ReachConfig) -> "Policy":
        """See TaskDefinition."""
        from navtask.reach.planners import PLANNERS

        return PLANNERS[name](config)
