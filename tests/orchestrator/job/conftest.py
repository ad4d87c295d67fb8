"""A real training, as small as it can be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.config import Config, compose
from orchestrator.job import spec

SMALL = (
    "num_envs=16",
    "algorithm.num_steps_per_env=16",
    "algorithm.iterations=4",
    "algorithm.checkpoint_every=2",
    "evaluation.every=2",
    "evaluation.num_rooms=10",
    "policy.hidden_dims=[16,16]",
    "device=cpu",
)


@pytest.fixture
def small_config() -> Callable[..., Config]:
    """The project's own config, shrunk; overrides in Hydra's grammar."""

    def make(*overrides: str) -> Config:
        return compose(*SMALL, *overrides)

    return make


@pytest.fixture
def trial(tmp_path: Path, small_config: Callable[..., Config]) -> Callable[..., Path]:
    """A trial's folder, written as the driver writes it; its job hasn't run."""

    def make(name: str, *overrides: str) -> Path:
        config = small_config(*overrides)
        folder = tmp_path / name
        spec.write(spec.TrialSpec(study="test", number=0, seed=config.seed, params={}, folder=folder, config=config))
        return folder

    return make
