"""The navigation task from outside."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from navtask.nav.config import NavConfig, validate, validate_rooms
from navtask.tasks import TaskDefinition

if TYPE_CHECKING:
    from navtask.evaluation import Policy
    from navtask.nav.env import NavEnv
    from navtask.nav.evaluation import NavEvaluator


class Nav(TaskDefinition):
    """A disc robot with a lidar drives through unknown rooms to a goal."""

    name = "nav"
    config = NavConfig
    world = "rooms"
    metrics = MappingProxyType(
        {
            "success_rate": "share of rooms whose goal is reached, without touching anything, within the time limit",
            "collision_rate": "share of rooms that end in any other way but the time limit",
            "timeout_rate": "share of rooms that the time limit ends; the three sum to 1",
            "spl": "success weighted by path length, l / max(p, l): p the path driven, l the shortest way to the goal, "
            "on a grid of 0.05 m (a tenth of a cell where cells make the obstacles) inflated by the robot's radius; "
            "ending within goal_radius of the goal forgives a detour of that much (Anderson et al. 2018, "
            "arXiv:1807.06757)",
            "sct": "success weighted by completion time, t* / max(t, t*), t* = l / v_max (Yokoyama, Ha, Batra 2021, "
            "arXiv:2103.08022)",
            "barn_score": "t* / clip(t, 2 t*, 8 t*) of successes, 0 of failures, so at most 0.5 (BARN challenge, Xiao "
            "et al. 2022, arXiv:2208.10473)",
            "time_to_goal": "mean of the successes, s",
            "path_length": "mean of the successes, m",
            "min_clearance": "least distance of an episode from the robot's hull to anything, mean over rooms, m",
            "action_change": "mean squared change of action, |a(t) - a(t-1)|^2, of an episode, mean over rooms",
            "worst_decile_success": "success on the tenth of the rooms whose shortest way is the greatest detour",
        }
    )
    better = MappingProxyType(
        dict.fromkeys(metrics, "more")
        | dict.fromkeys(("collision_rate", "timeout_rate", "time_to_goal", "path_length", "action_change"), "less")
    )
    causes = ("diverged", "collision", "out_of_bounds", "success", "timeout")
    symmetric = True
    planners = ("straight", "dynamic_window")

    def validate(self, config: NavConfig) -> None:
        """See TaskDefinition."""
        validate(config)

    def validate_world(self, world: Any, key: str) -> None:
        """See TaskDefinition."""
        from navtask.nav.robot import ROBOT

        validate_rooms(world, ROBOT.radius, key)

    def make_env(self, config: NavConfig, **settings: Any) -> "NavEnv":
        """See TaskDefinition."""
        from navtask.nav.env import NavEnv

        return NavEnv(config, **settings)

    def evaluator(self, env: "NavEnv") -> "NavEvaluator":
        """See TaskDefinition."""
        from navtask.nav.evaluation import NavEvaluator

        return NavEvaluator(env)

    def make_planner(self, name: str, config: NavConfig) -> "Policy":
        """See TaskDefinition."""
        from navtask.nav.planners import PLANNERS

        return PLANNERS[name](config)
