"""Before a sweep the environment is examined: a sick one is refused by name, a healthy one asked once."""

import json
import re
import shlex

import pytest
from harness import SWEEP, configure

from navtask.doctor import CHECKS
from navtask.doctor.loading import find
from orchestrator import health
from orchestrator.config import CONF, from_plain, to_plain


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NAVTASK_CACHE", str(tmp_path / "cache"))


SICK = "task.rewards.out_of_bounds.weight=1e39"
"""More than a float32 holds, so that the reward is not a number."""


TOLD = "environment examined: 17 checks, nothing failed"


def patient_of(command):
    """Whom the doctor's command examines."""
    assert command[:2] == ("-m", "navtask.doctor")
    return find(**dict(setting.split("=", 1) for setting in command[2:]))


def again(error):
    """The command that a line names."""
    return tuple(shlex.split(re.search(r"See \S+ (-m navtask\.doctor .*?);", error)[1]))


def stress(patient):
    """What the first check sees."""
    return CHECKS[0].examine(patient, {})[1]


def presets():
    for group, task in (("rooms", "nav"), ("targets", "reach")):
        for file in sorted((CONF / "task" / group).glob("*.yaml")):
            yield pytest.param((f"task={task}", f"task/{group}={file.stem}"), id=file.stem)


@pytest.mark.parametrize("chosen", list(presets()))
def test_what_is_examined_is_what_a_job_trains_on(chosen, tmp_path):
    config = configure(tmp_path, *chosen, "task.observations.action_prev.enabled=true")
    patient = patient_of(health._command(health._question(config), "doctor-1.yaml"))
    assert patient.copy(rooms=2).env.config == config.task == from_plain(to_plain(config)).task


def test_a_healthy_one_is_examined_once(tmp_path, capsys):
    config = configure(tmp_path, *SWEEP, "task/rooms=barn")
    assert health.examine(config) == {"doctor": "passed", "doctor.checks": TOLD.split(": ")[1]}
    assert capsys.readouterr().out == f"{TOLD}\n"
    kept = health.examine(config)["doctor.checks"]
    assert re.fullmatch(r"17 checks, nothing failed \(kept from \d{4}-\d\d-\d\d \d\d:\d\d\)", kept)
    assert capsys.readouterr().out == f"environment examined: {kept}\n"
    (file,) = (tmp_path / "cache").glob("doctor-*.json")
    findings = json.loads(file.read_text())
    findings[3]["verdict"] = "could not tell"
    file.write_text(json.dumps(findings))
    told = f"environment examined: {health.examine(config)['doctor.checks']}"
    assert told.startswith(f"{TOLD}, 1 could not tell ({findings[3]['check']}) (kept")


@pytest.mark.parametrize("kept", ["", "[]", "{}", "3", '{"a": 1}', '[{"check": "stress"}]', "[3]", "fail"])
def test_only_what_was_kept_of_a_healthy_one_is_believed(kept, tmp_path):
    file = tmp_path / "kept.json"
    finding = {"check": "stress", "verdict": "fail", "figure": "1 reward", "look_at": "terms"}
    file.write_text(json.dumps([finding]) if kept == "fail" else kept)
    assert health._kept(file) is None
    file.write_text(json.dumps([finding | {"verdict": "pass"}]))
    assert health._kept(file) == [finding | {"verdict": "pass"}]


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
    assert not list((tmp_path / "cache").glob("doctor-*.json")), "it is asked again"
    assert f"stress: {stress(patient_of(again(err)))}" in err


def test_off_is_told_and_asks_nobody(tmp_path, capsys):
    assert health.examine(configure(tmp_path, *SWEEP, SICK, "doctor=off")) == {"doctor": "off"}
    assert capsys.readouterr().out == "environment not examined: doctor=off\n"


def test_what_the_environment_raises_is_told_without_what_the_check_was_about():
    raised = "the environment raises TermError: reward term 'spin' raised AttributeError: no omga (rewards.py:3)"
    findings = [{"check": "stress", "verdict": "fail", "figure": raised, "look_at": "terms that divide"}]
    with pytest.raises(health.SickEnvironment) as told:
        health._refuse_sick(findings, ("-m", "navtask.doctor"))
    assert str(told.value).startswith(f"{raised}. See ")


def test_a_check_that_crashes_is_no_sickness():
    findings = [{"check": "stress", "verdict": "could not examine", "figure": "the check raises", "look_at": "?"}]
    with pytest.raises(
        RuntimeError, match=r"could not examine the environment: stress: the check raises\. See"
    ) as told:
        health._refuse_sick(findings, ("-m", "navtask.doctor"))
    assert not isinstance(told.value, health.SickEnvironment)


def test_a_single_run_is_not_examined(tmp_path):
    assert health.examine(configure(tmp_path, SICK)) == {}


@pytest.mark.parametrize("wrong", ["doctor=maybe", "doctor=3", "dry_run=2", "task.observations.lidar.enabled=3"])
def test_only_on_and_off_are_understood(wrong, cli):
    code, _, err = cli(wrong)
    assert code == 2
    assert err.splitlines() == [f"error: {wrong}: expected true or false"]
