"""`python -m orchestrator.diagnose`: one training, from wherever its curves are kept."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ailments import AILMENTS, EVERY, LENGTH, SETTINGS, healthy

from orchestrator import command
from orchestrator import diagnose as doctor
from orchestrator.job.curves import Curves
from orchestrator.job.spec import as_yaml
from orchestrator.record.mlflow import Recorder

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        source, *others = [str(argument) for argument in arguments] or [""]
        code = command.run(doctor.run, "", [f"run={source}", *others] if source else [])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def nested(flat: dict) -> dict:
    tree: dict = {}
    for path, value in flat.items():
        *parents, leaf = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a training that was made to overshoot, with its config, log and event file."""
    folder = tmp_path / "trial_0007"
    folder.mkdir()
    columns = healthy(0)
    AILMENTS["kl_overshoot"][1](columns)
    (folder / "config.yaml").write_text(as_yaml(nested(SETTINGS)))
    curves = Curves(folder)
    for step in range(LENGTH):
        held_out = (step + 1) % EVERY == 0
        metrics = {k: float(v[step]) for k, v in columns.items() if held_out or not k.startswith("Eval/")}
        curves.write(step + 1, metrics | {"Train/env_steps": 100.0 * step})
    curves.close()
    return folder


def only_warning(text: str) -> str:
    (line,) = [line for line in text.splitlines() if " warning " in line]
    return line.split()[0]


def test_a_trials_folder(diagnose: Run, folder: Path) -> None:
    code, out, err = diagnose(folder)
    assert (code, err) == (0, "")
    assert "what the curves of 120 iterations show" in out
    assert only_warning(out) == "kl_overshoot"
    assert re.search(r"KL beyond twice the desired one in (6|7)\d% of the mini-batches", " ".join(out.split()))
    assert "not judged" not in out


def test_the_log_alone(diagnose: Run, folder: Path) -> None:
    (folder / "config.yaml").unlink()
    code, out, _ = diagnose(folder / "metrics.jsonl")
    assert code == 0
    assert only_warning(out) == "kl_overshoot"
    assert "not judged: synchronous_timeouts (task.episode_length is not known)" in out


@pytest.mark.parametrize("what", ["folder", "file"])
def test_event_files(diagnose: Run, folder: Path, what: str) -> None:
    (folder / "metrics.jsonl").unlink()
    (file,) = folder.glob("events.out.tfevents.*")
    code, out, _ = diagnose(folder if what == "folder" else file)
    assert code == 0
    assert only_warning(out) == "kl_overshoot"
    assert "not judged" not in out


def test_a_run_in_mlflow(diagnose: Run, folder: Path, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    recorder = Recorder(uri, "navigation", ship_every=0.1)
    recorder.start_trial(0, folder, "uid0", config=nested(SETTINGS))
    recorder.end_trial(0, "finished")
    deadline = time.monotonic() + 60
    while recorder.run_id(0) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    run_id = recorder.run_id(0)
    assert recorder.close("finished", 60).unfinished == ()

    code, out, _ = diagnose(run_id, f"tracking.uri={uri}")
    assert code == 0
    assert only_warning(out) == "kl_overshoot"
    assert "not judged" not in out  # params hold the config

    code, out, err = diagnose("0" * 32, f"tracking.uri={uri}")
    assert (code, out) == (2, "")
    assert err == f"error: run={'0' * 32}: neither a folder nor a run in {uri}\n"


def test_for_programs(diagnose: Run, folder: Path) -> None:
    code, out, _ = diagnose(folder, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["run"] == str(folder)
    assert told["iterations"] == LENGTH
    (warning,) = [verdict for verdict in told["verdicts"] if verdict["level"] == "warning"]
    assert warning["code"] == "kl_overshoot"
    assert warning["figure"] == pytest.approx(0.68, abs=0.03)
    assert warning["iterations"][1] == LENGTH
    assert told["not_judged"] == {}


def test_a_healthy_run_says_so(diagnose: Run, tmp_path: Path) -> None:
    curves = Curves(tmp_path)
    for step in range(3):
        curves.write(step, {"PPO/kl_first": 0.0})
    curves.close()
    code, out, _ = diagnose(tmp_path)
    assert code == 0
    assert out.startswith("3 iterations: nothing to object to\nnot judged: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "run: expected run=<folder, log, event file or MLflow run id>"),
        (["nosuch"], "nosuch: expected a trial's folder, a metrics.jsonl, event files, or the id of an MLflow run"),
        (
            ["a" * 32, "tracking.uri=sqlite:////nosuch/mlflow.db"],
            "tracking.uri=sqlite:////nosuch/mlflow.db: no such file",
        ),
        (["a" * 32, "tracking.uri=nosuch"], "tracking.uri=nosuch: "),
        (["x", "--nosuch"], "--nosuch: no such option"),
    ],
)
def test_mistakes_are_one_line(diagnose: Run, arguments: list[str], told: str) -> None:
    code, out, err = diagnose(*arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_files_that_are_something_else(diagnose: Run, tmp_path: Path) -> None:
    for name, text in (("metrics.jsonl", "no JSON\n"), ("events.out.tfevents.1", "no events")):
        file = tmp_path / name
        file.write_text(text)
        code, _, err = diagnose(file)
        assert code == 2
        assert err.startswith(f"error: run={file}: ")
        assert err.count("\n") == 1
        file.unlink()
    code, _, err = diagnose(tmp_path)
    assert (code, err) == (2, f"error: run={tmp_path}: expected a folder with metrics.jsonl or events.out.tfevents.*\n")
