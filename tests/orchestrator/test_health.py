"""Before a sweep the environment is examined: a sick one is refused by name, a healthy one asked once."""

import pytest
from harness import SWEEP, configure

from orchestrator import health


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NAVTASK_CACHE", str(tmp_path / "cache"))


SICK = "task.rewards.out_of_bounds.weight=1e39"
"""More than a float32 holds, so that the reward is not a number."""


def test_a_healthy_one_is_examined_once(tmp_path, capsys):
    config = configure(tmp_path, *SWEEP)
    assert health.examine(config) == {"doctor": "passed"}
    assert "nothing failed" in capsys.readouterr().out
    assert health.examine(config) == {"doctor": "passed"}
    assert capsys.readouterr().out == ""


def test_what_the_environment_depends_on_is_asked_again(tmp_path):
    def print_of(*overrides):
        config = configure(tmp_path, *SWEEP, *overrides)
        return health._fingerprint(config, health._question(config))

    same = print_of()
    assert print_of("algorithm.gamma=0.9", "num_envs=8", "seed=3") == same
    critic = "policy.obs_groups={actor: [policy], critic: [policy, privileged]}"
    others = {print_of(o) for o in ("task.history=2", "task/rooms=open", "physics.backend=mujoco_warp", critic)}
    assert len(others | {same}) == 5


def test_a_sick_one_is_refused_naming_the_fault_and_nothing_is_begun(tmp_path, cli):
    code, out, err = cli(*SWEEP, SICK, f"output_dir={tmp_path / 'out'}")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert err.startswith("error: the environment is sick: stress: reward not finite in")
    assert "doctor=off" in err
    assert out == ""
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "cache").glob("doctor-*")), "it is asked again"


def test_off_is_told_in_a_tag_and_asks_nobody(tmp_path):
    assert health.examine(configure(tmp_path, *SWEEP, SICK, "doctor=off")) == {"doctor": "off"}


def test_a_single_run_is_not_examined(tmp_path):
    assert health.examine(configure(tmp_path, SICK)) == {}


@pytest.mark.parametrize("wrong", ["doctor=maybe", "doctor=3", "dry_run=2", "task.observations.lidar.enabled=3"])
def test_only_on_and_off_are_understood(wrong, cli):
    code, _, err = cli(wrong)
    assert code == 2
    assert err.splitlines() == [f"error: {wrong}: expected true or false"]
