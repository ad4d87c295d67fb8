"""What is written as the best runs as the trial did."""

from pathlib import Path

import harness

from orchestrator.config import to_plain
from orchestrator.job.spec import TrialSpec
from orchestrator.search import best


def test_the_best_is_trained_again_as_it_was(tmp_path: Path) -> None:
    weights = ("task.rewards.goal.weight=29", "algorithm/rnd=default", "policy.hidden_dims=[16]")
    config = harness.configure(tmp_path, *weights, "launcher.nproc_per_node=2", "launcher.max_retries=7", "seed=5")
    spec = TrialSpec(study="study", number=3, seed=5, params={}, folder=tmp_path / "trial_0003", config=config)
    (tmp_path / "study").mkdir()
    best.write(tmp_path / "study" / best.BEST, spec, "for a test.")
    again = harness.configure_best(tmp_path, tmp_path / "study")
    assert again.launcher.nproc_per_node == 2
    assert again.launcher.max_retries == 2  # who runs it says how patient to be
    was, now = to_plain(config), to_plain(again)
    assert {key: now[key] for key in now if key not in best.NOT_OF_THE_TRIAL} == {
        key: was[key] for key in was if key not in best.NOT_OF_THE_TRIAL
    }
