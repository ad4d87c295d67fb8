"""``python -m navtask.doctor``: the table, JSON, exit codes, and mistakes told in one line."""

import json
from dataclasses import asdict

import pytest
import yaml
from reachsetup import load_reach

from navtask.doctor import CHECKS
from navtask.doctor.__main__ import GAP, HEAD, main, table
from navtask.doctor.settings import load


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
        (
            "taks=nav",
            "taks='nav': expected one of task=…, seed=…, device=…, backend=…, privileged=…, task/…=…",
        ),
        ("task=lost.yaml", "task='lost.yaml': expected a YAML file ([Errno 2] No such file"),
        ("privileged=maybe", "privileged='maybe': expected true or false"),
        ("task/rooms=bern", "task/rooms='bern': expected one of barn, dense, open; did you mean 'barn'?"),
        ("task/roms=barn", "task/roms='barn': expected a folder of conf/task; did you mean 'task/rooms'?"),
        ("task.rewrads.goal.weight=3", "task.rewrads: no such key; did you mean 'rewards'?"),
        ("task.rewards.goal.weight=lots", "task.rewards.goal.weight='lots': expected a number"),
        ("task.rewards.gaol.weight=3", "expected a registered reward term; did you mean 'goal'?"),
        ("task.lidar.beams=[", "task.lidar.beams='[': expected a value, as YAML writes it"),
        ("task.name.first=3", "task.name.first='3': expected nothing within name, which is 'nav'"),
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
    assert load("nav", {}) == nav_config()


def test_what_a_training_changes_of_its_task_is_changed_here_too(nav_config):
    changed = load(
        "nav",
        {
            "task.rewards.progress.weight": "0",
            "task.rooms.gap": "0.46",
            "task/rooms": "barn",
            "+task.rewards.goal.params": "{}",
            "task.history": "2",
        },
    )
    expected = nav_config("barn", history=2)
    expected.rooms.gap = 0.46
    expected.rewards["progress"].weight = 0.0
    assert changed == expected
    assert load("reach", {"task/targets": "wide"}).targets == load_reach("wide").targets


@pytest.mark.parametrize("within", [lambda task: task, lambda task: {"task": task, "seed": 1}])
def test_a_file_may_hold_the_task_alone_or_a_whole_config(within, nav_config, tmp_path):
    config = nav_config("barn")
    file = tmp_path / "some.yaml"
    file.write_text(yaml.safe_dump(within(asdict(config))))
    assert load(str(file), {}) == config


def test_the_last_columns_are_wrapped_to_a_terminal_and_lose_nothing():
    rows = [("stress", "pass", "12480 room-steps, largest observation 2.89", "terms that divide or take roots"), HEAD]
    wide = table(rows, None).splitlines()
    assert [len(wide), max(map(len, wide))] == [
        3,
        sum(len(cell) for cell in rows[0]) + len("verdict") - 4 + 3 * len(GAP),
    ]
    assert table(rows, 200) == table(rows, None)
    narrow = table(rows, 60).splitlines()
    assert max(map(len, narrow)) <= 60
    assert sorted(" ".join(narrow).split()) == sorted(" ".join(wide).split())
    assert narrow[1].startswith("stress  pass     12480")
    assert narrow[2].startswith(" " * len("stress  pass     "))
