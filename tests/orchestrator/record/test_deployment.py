"""What README and docs/deployment.md say of a policy's use holds: their code is run, and their tables are the
environment's own."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import navtask.numpy_policy
from navtask import tasks
from navtask.numpy_policy import NumpyPolicy
from orchestrator.config import PROJECT, compose
from orchestrator.job.export import export_policy
from orchestrator.job.runner import build_actor
from orchestrator.record.mlflow import Recorder

TEXTS = [PROJECT / "README.md", PROJECT / "docs" / "deployment.md"]
CODE = {text: re.findall(r"```python\n(.*?)```", text.read_text(), re.DOTALL) for text in TEXTS}


def snippets(word):
    return [pytest.param(c, id=f"{t.stem}-{i}") for t, code in CODE.items() for i, c in enumerate(code) if word in c]


def make_env(task):
    config = compose(f"task={task}").task
    return tasks.get(task).make_env(config, num_envs=1, seed=0)


@pytest.fixture
def robot(tmp_path):
    """A folder with what goes to a robot: an exported policy, not trained, and the one file."""
    config, env = compose(), make_env("nav")
    actor = build_actor(config.policy, env.get_observations(), env.num_actions).eval()
    folder = tmp_path / "robot"
    folder.mkdir()
    export_policy(actor, config.policy.activation, config.policy.distribution, env.interface(), folder)
    shutil.copy(navtask.numpy_policy.__file__, folder)
    return folder


def run(code, folder):
    """The numbers that it prints, run in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


NUMPY_ALONE = "import sys, numpy as np\nassert not {'torch', 'navtask'} & set(sys.modules)\n"


@pytest.mark.parametrize("code", snippets("controller("))
def test_on_a_robot(robot, code):
    show = "print(forward, left, yaw_rate, *np.flatnonzero(np.isinf(ranges)), *(goal if 'goal' in dir() else ()))"
    told = run(f"{code}\n{NUMPY_ALONE}{show}", robot)
    assert np.isfinite(told[:3]).all()
    # The beam to the right is the 54th of 72: there alone nothing came back.
    assert told[3:] == ([54.0, pytest.approx(2.0), pytest.approx(1.0)] if "angle_min" in code else [])


@pytest.mark.parametrize("code", snippets("onnxruntime"))
def test_with_onnx(robot, code):
    show = "print(*command, *Controller('policy.npz')(scan=[3.0] * 72, goal=(2, 1), vel_body=(0.3, 0), omega=0.1))"
    told = run(f"{code}\n{NUMPY_ALONE}{show}", robot)
    assert told[:3] == pytest.approx(told[3:], abs=1e-5)


def test_from_mlflow(robot, uri):
    recorder = Recorder(uri, "nav")
    recorder.start_study("study-uid", "reward_weights")
    recorder.start_trial(0, robot, "u")
    recorder.end_trial(0, "finished", policy=robot / "policy.npz")
    recorder.name_champion(0, "reward_weights", "better than the baseline")
    assert recorder.close("finished", 60).unfinished == ()
    for snippet in (s.values[0] for s in snippets("models:/")):
        code = snippet.replace("sqlite:///mlruns/mlflow.db", uri)
        assert code != snippet
        if "interface" not in code:
            code += "\nimport numpy as np\nactions = model.predict(np.zeros((1, 78), np.float32))"
        told = run(f"{code}\nprint(*actions[0])", robot)
        assert told == pytest.approx(NumpyPolicy(robot / "policy.npz")(np.zeros(78)).tolist(), abs=1e-6)
        assert not (robot / "mlflow.db").exists()


def rows(heading, columns):
    """Of the document's tables, those that follow ``heading``, up to an empty line."""
    text = TEXTS[1].read_text()
    table = text[text.index(heading) :].split("\n|", 1)[1].split("\n\n")[0]
    lines = [[cell.strip().strip("`") for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]
    assert {len(line) for line in lines} == {columns}
    return lines


@pytest.mark.parametrize("task", ["nav", "reach"])
def test_the_tables_are_the_environments_own(task):
    interface = make_env(task).interface()
    told = [
        (int(start), int(width), term, given.split("`")[0], unit, float(scale))
        for start, width, term, given, unit, _, scale in rows(f"`task={task}`", 7)
    ]
    terms = interface["observation"]["terms"]
    assert told == [(t["start"], t["width"], t["name"], t["input"], t["unit"], t["scale"]) for t in terms]
    axes = [(axis["name"], axis["unit"], axis["scale"]) for axis in interface["action"]["axes"]]
    if task == "nav":
        assert [(name, unit, float(scale)) for name, _, unit, scale in rows("`task.observations.action", 4)] == axes
    else:
        assert [axes[0], axes[-1], len(axes)] == [("waist", "rad/s", 1.5), ("hand_roll", "rad/s", 1.5), 6]
    period = f"held for {interface['control_dt']:g} s"
    assert period in TEXTS[1].read_text()
