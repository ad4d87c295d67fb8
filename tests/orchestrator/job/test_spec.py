"""The trial's folder."""

import json
import os
from dataclasses import replace
from pathlib import Path

import harness
import pytest

from orchestrator.config import Config
from orchestrator.errors import UserError
from orchestrator.job import spec


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return harness.configure(tmp_path_factory.mktemp("out"))


def trial_spec(config: Config, folder: Path, number: int = 3) -> spec.TrialSpec:
    params = {"policy.hidden_dims": [8, 8], "algorithm.gamma": 0.9}
    return spec.TrialSpec(study="s", number=number, seed=7, params=params, folder=folder, config=config)


def test_a_trial_is_written_whole_and_read_back(config: Config, tmp_path: Path) -> None:
    written = trial_spec(config, tmp_path / "trial_0003")
    spec.write(written)
    assert spec.read(written.folder) == written
    assert sorted(f.name for f in tmp_path.iterdir()) == ["trial_0003"]
    data = json.loads((written.folder / "trial.json").read_text())
    assert (data["host"], data["pid"]) == (os.uname().nodename, os.getpid())


def test_a_folder_is_created_once(config: Config, tmp_path: Path) -> None:
    first = trial_spec(config, tmp_path / "trial")
    spec.write(first)
    with pytest.raises(FileExistsError):
        spec.write(trial_spec(config, tmp_path / "trial", number=4))
    assert spec.read(first.folder) == first
    assert len(list(tmp_path.iterdir())) == 1


def test_an_update_changes_the_trial_not_its_config(config: Config, tmp_path: Path) -> None:
    first = trial_spec(config, tmp_path / "trial")
    spec.write(first)
    before = (first.folder / "config.yaml").read_bytes()
    spec.update(replace(first, attempt=2, mlflow_run_id="r"))
    assert spec.read(first.folder) == replace(first, attempt=2, mlflow_run_id="r")
    assert (first.folder / "config.yaml").read_bytes() == before


def test_a_strangers_config_runs_nothing(config: Config, tmp_path: Path) -> None:
    first = trial_spec(config, tmp_path / "trial")
    spec.write(first)
    marker = tmp_path / "marker"
    for evil in (
        f"seed: !!python/object/apply:os.system ['touch {marker}']",
        f"_target_: os.system\ncommand: touch {marker}",
        "device: ${oc.env:HOME}",
        "task: {rewards: {goal: {weight: {_target_: os.getcwd}}}}",
        "[]",
        "just text",
    ):
        (first.folder / "config.yaml").write_text(evil)
        with pytest.raises(UserError):
            spec.read(first.folder)
    assert not marker.exists()


def test_no_password_is_written(tmp_path: Path) -> None:
    config = harness.configure(tmp_path)
    config = replace(config, tracking=replace(config.tracking, uri="postgresql://me:it's a/secret@host/db"))
    spec.write(trial_spec(config, tmp_path / "trial"))
    assert all(b"secret" not in f.read_bytes() for f in (tmp_path / "trial").iterdir())


@pytest.mark.parametrize(("name", "value"), [("number", "x"), ("seed", "q"), ("uid", 3), ("params", [])])
def test_a_damaged_trial_is_said_in_one_line(trial, name, value):
    folder = trial("damaged")
    data = json.loads((folder / spec.SPEC).read_text())
    (folder / spec.SPEC).write_text(json.dumps(data | {name: value}))
    with pytest.raises(UserError, match=rf"trial.json: damaged: {name}="):
        spec.read(folder)


def test_what_is_no_trial(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for path in (file, tmp_path, tmp_path / "nothing", Path("/dev/null")):
        with pytest.raises(UserError, match="no trial here"):
            spec.read(path)
    (tmp_path / "trial.json").write_text("{")
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match="damaged"):
        spec.read(tmp_path)
