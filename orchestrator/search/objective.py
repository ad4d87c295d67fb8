"""What a trial is judged by: a metric that doesn't depend on what is searched."""

import re
from collections.abc import Sequence

from orchestrator.config import Config, task_of
from orchestrator.errors import UserError, nearest


def check(config: Config, moves_rewards: bool) -> None:
    """Raise UserError, with the reason, when ``sweep.objective`` can't judge this sweep's trials."""
    sweep = config.sweep
    assert sweep is not None
    name = sweep.objective
    known = known_metrics(config)
    if moves_rewards and not name.startswith("Eval"):
        raise UserError(
            f"sweep.objective={name}: measured in training, on the very rewards that this sweep changes, so a trial "
            "would win by being paid more; take a metric of the frozen evaluation, such as Eval/success_rate"
        )
    if name not in known:
        raise UserError(f"sweep.objective={name}: no such metric{nearest(name, known)}")
    evaluations = config.algorithm.iterations // config.evaluation.every
    if evaluations < 1 and name.startswith("Eval/") and sweep.pruner is not None:
        raise UserError(
            f"evaluation.every={config.evaluation.every}: expected at most algorithm.iterations="
            f"{config.algorithm.iterations}, or sweep.pruner=null: there would be nothing to prune by"
        )


def known_metrics(config: Config) -> list[str]:
    """Every metric that could be an objective or a requirement under this config: those of the frozen evaluations, and
    those of training, which can be objectives only where rewards are left alone."""
    task = task_of(config)
    return [
        *(f"Eval/{name}" for name in task.metrics),
        *(f"Eval_{further}/{name}" for further in config.evaluation.further_sets for name in task.metrics),
        "Train/mean_reward",
        "Train/mean_episode_length",
        *(f"Episode_Termination/{cause}" for cause in task.causes),
        "Perf/total_fps",
    ]


def check_require(config: Config) -> None:
    """Raise UserError for a requirement on a metric that there isn't."""
    known = known_metrics(config)
    for name in config.require:
        if name not in known:
            raise UserError(f"require.{name}: no such metric{nearest(name, known)}")


def summarise(values: Sequence[float], window: int) -> float | None:
    """The mean of the last ``window`` values (of all, where there are fewer): a policy wanders. None without values."""
    last = values[-window:]
    return sum(last) / len(last) if last else None


def is_evaluation(name: str) -> bool:
    """Whether a metric comes from a frozen evaluation, not from training."""
    return re.match(r"Eval(_[^/]+)?/", name) is not None
