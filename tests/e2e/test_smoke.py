"""The smoke job fails when learning is broken. It would take longer to see it learn: the smoke job itself does that."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

SHORT = ("algorithm.iterations=40", "evaluation.num_rooms=200", "require={Eval/success_rate: 0.4}")


@pytest.mark.parametrize(
    "broken",
    ["algorithm.learning_rate=0", "task.observations.goal_polar.enabled=false"],
)
def test_broken_learning_is_a_failure(orchestrator: Callable[..., CompletedProcess[str]], broken: str) -> None:
    done = orchestrator("experiment=smoke", *SHORT, broken)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error: Eval/success_rate is" in done.stderr
    assert "required is at least 0.4" in done.stderr


def test_what_broken_jobs_fail_at_a_healthy_one_passes(orchestrator: Callable[..., CompletedProcess[str]]) -> None:
    """The same short job: it is learning that is told apart."""
    done = orchestrator("experiment=smoke", *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
