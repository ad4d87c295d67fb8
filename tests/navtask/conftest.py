"""Tasks built from the project's own settings, so that the tests repeat none of their numbers."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch
from navsetup import load_nav

from navtask.nav.env import NavEnv


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """No test reads or leaves anything in the user's cache."""
    monkeypatch.setenv("NAVTASK_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def nav_config():
    """``nav_config(preset, **changes)``: the task as ``conf/`` has it, but for the changes."""
    return load_nav


@pytest.fixture
def make_env():
    """``make_env(config, num_envs, **settings)``: a task with seed 0 unless told otherwise."""

    def make(config=None, num_envs=8, **settings):
        return NavEnv(config or load_nav(), num_envs=num_envs, **{"seed": 0, **settings})

    return make
