"""The reaching task from outside."""

from typing import TYPE_CHECKING, Any

from navtask.reach.config import ReachConfig, validate, validate_targets
from navtask.tasks import TaskDefinition

if TYPE_CHECKING:
    from navtask.reach.env import ReachEnv
    from navtask.reach.evaluation import ReachEvaluator


class Reach(TaskDefinition):
    """A six-axis arm brings its tool to a point."""

    name = "reach"
    config = ReachConfig
    world = "targets"
    metrics = (
        "success_rate",
        "timeout_rate",
        "spl",
        "time_to_goal",
        "path_length",
        "final_distance",
        "effort",
        "action_change",
    )
    causes = ("diverged", "success", "timeout")
    groups = ("policy",)
    symmetric = True

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

    def make_evaluator(
        self, config: ReachConfig, world: Any, num_rooms: int, *, privileged: bool = False, **settings: Any
    ) -> "ReachEvaluator":
        """See TaskDefinition."""
        from navtask.reach.evaluation import ReachEvaluator

        assert not privileged, "there is no such group"
        return ReachEvaluator(config, world, num_rooms, **settings)
