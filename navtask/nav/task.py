"""The navigation task from outside."""

from typing import TYPE_CHECKING, Any

from navtask.nav.config import NavConfig, validate, validate_rooms
from navtask.tasks import TaskDefinition

if TYPE_CHECKING:
    from navtask.nav.env import NavEnv
    from navtask.nav.evaluation import NavEvaluator


class Nav(TaskDefinition):
    """A disc robot with a lidar drives through unknown rooms to a goal."""

    name = "nav"
    config = NavConfig
    world = "rooms"
    metrics = (
        "success_rate",
        "collision_rate",
        "timeout_rate",
        "spl",
        "sct",
        "barn_score",
        "time_to_goal",
        "path_length",
        "min_clearance",
        "action_change",
        "worst_decile_success",
    )
    causes = ("diverged", "collision", "out_of_bounds", "success", "timeout")
    symmetric = True

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

    def make_evaluator(self, config: NavConfig, world: Any, num_rooms: int, **settings: Any) -> "NavEvaluator":
        """See TaskDefinition."""
        from navtask.nav.evaluation import NavEvaluator

        return NavEvaluator(config, world, num_rooms, **settings)
