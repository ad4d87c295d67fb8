"""``python -m navtask.doctor``: the table, JSON, exit codes, and mistakes told in one line."""

import json

import pytest

from navtask.doctor import CHECKS
from navtask.doctor.__main__ import main
from navtask.doctor.loading import find, typed
from navtask.nav.config import NavConfig


def test_a_healthy_task_prints_a_table_and_exits_with_0(capsys):
    assert main(["task=nav"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "check"
    assert [row[: len(check.name)] for row, check in zip(rows, CHECKS, strict=True)] == [c.name for c in CHECKS]
    assert all("pass" in row for row in rows)


def test_a_sick_class_exits_with_1_and_json_says_why(capsys):
    assert main(["task=foreign:SaysNothingOfTime", "seed=1", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    (fault,) = [finding for finding in findings if finding["verdict"] == "fail"]
    assert fault["check"] == "truncation"
    assert "time_outs" in fault["figure"]
    assert set(fault) == {"check", "verdict", "figure", "look_at"}


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("task=nab", "task.name='nab': expected a task: nav, reach; did you mean 'nav'?"),
        ("taks=nav", "taks='nav': expected one of task=…, seed=…, device=…; did you mean 'task'?"),
        ("device=cuda:99", "device='cuda:99': expected cpu, or the cuda device of a GPU that this machine has"),
        ("seed=-1", "seed='-1': expected a whole number, at least 0"),
        ("task=foreign:Nobody", "task='foreign:Nobody': expected package.module:Class"),
        ("task=nowhere:Env", "task='nowhere:Env': expected package.module:Class"),
        ("task=foreign:Needy", "no more than num_envs, seed, device, not gravity as well"),
    ],
)
def test_a_mistake_is_one_line_and_exits_with_2(argument, told, capsys):
    assert main([argument]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert told in err


def test_a_task_by_name_has_the_numbers_of_conf(nav_config):
    patient = find("nav")
    assert patient.copy(rooms=2).env.config == nav_config()


def test_a_plain_config_becomes_its_dataclasses(nav_config):
    from dataclasses import asdict

    assert typed(NavConfig, asdict(nav_config())) == nav_config()
