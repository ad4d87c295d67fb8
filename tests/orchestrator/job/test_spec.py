import json
from pathlib import Path

import pytest

from orchestrator.errors import UserError
from orchestrator.job import spec


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
