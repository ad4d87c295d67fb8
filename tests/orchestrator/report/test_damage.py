"""Whatever has become of a study's files, each costs one line that names it; the rest is told and gone on with."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import harness
import numpy as np
import pytest
from PIL import Image

from orchestrator import command, diagnose, evaluate, rerun
from orchestrator.report.__main__ import report

CONFIRM = ("sweep.n_trials=3", "confirm.top_k=1", "confirm.seeds=3")
PARETO = (
    "sweep.objective=null",
    "+sweep.objectives={Eval/success_rate: {direction: maximize, worst: 0.0},"
    " Eval/collision_rate: {direction: minimize, worst: 1.0}}",
    "sweep.n_trials=2",
)
KINDS = {"confirm": CONFIRM, "front": PARETO}

DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: None,
    "empty": lambda file: file.write_bytes(b""),
    "binary": lambda file: file.write_bytes(b"\xff\xfe\x00\x01" * 200),
    "{}": lambda file: file.write_text("{}\n"),
    "[]": lambda file: file.write_text("[]\n"),
    "null": lambda file: file.write_text("null\n"),
    "wrong types": lambda file: file.write_text(
        '{"uid": [], "points": [3], "config": {"3": 4}, "winner": {}, "comparisons": [{"trial": "x"}], "front": 7, '
        '"objectives": [1], "status": 5, "study": 1, "step": "x", "sets": 3, "seed": {}, "metrics": []}\n'
    ),
    "nested too deeply": lambda file: file.write_text("[" * 100_000 + "\n"),
    "a folder": lambda file: file.mkdir(),
}


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two small studies: one whose best was confirmed, and one with a front."""
    place = tmp_path_factory.mktemp("studies")
    for name, overrides in KINDS.items():
        harness.behave(place / name, all={"eval": {"Eval/collision_rate": 0.1}})
        driver = harness.sweep(place, f"sweep.name={name}", *overrides)
        assert driver.run() == 0
        for trial in (place / name).glob("trial_*"):
            (trial / "eval.json").write_text('{"sets": {"dense": {"set_hash": "x"}}}\n')
            noise = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
            Image.fromarray(noise).save(trial / "trajectories.png")
    return place


@pytest.fixture
def copy(studies: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(studies, tmp_path / "copy"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, list[str]]]:
    """A command in this process: exit code, stdout, lines of stderr."""

    def call(function: Callable, *arguments: str) -> tuple[int, str, list[str]]:
        capsys.readouterr()
        code = command.run(function, "", arguments)
        out, err = capsys.readouterr()
        return code, out, err.splitlines()

    return call


def damage(file: Path, how: str) -> None:
    """`cut in half`, or one of DAMAGES."""
    whole = file.read_bytes()
    file.unlink()
    DAMAGES.get(how, lambda file: file.write_bytes(whole[: len(whole) // 2]))(file)


HOW = [*DAMAGES, "cut in half"]
BOTH = [*(("confirm", how) for how in HOW), *(("front", how) for how in ("missing", "wrong types", "cut in half"))]


@pytest.mark.parametrize(("kind", "how"), BOTH)
def test_the_report_says_what_it_could_not_read(copy: Path, run: Callable, kind: str, how: str) -> None:
    """Every file that the report could do without is damaged at once."""
    folder = copy / kind
    names = [f"{kind}.json", "trial_0000/metrics.jsonl", "trial_0000/diagnosis.md", "trial_0000/trajectories.png"]
    names += ["trial_0001/trial.json" if kind == "confirm" else "trial_0001/config.yaml"]
    for name in names:
        damage(folder / name, how)
    code, out, err = run(report, f"study={folder}")
    assert (code, out) == (0, f"{folder / 'report.html'}\n")
    page = (folder / "report.html").read_text()
    assert all(line.startswith(f"not in the report: {folder}") for line in err), err
    # Without its last line a log is whole; of a picture, and of what was concluded, nobody knows that it was there.
    silent = {"cut in half": ["metrics.jsonl"], "missing": ["trajectories.png", f"{kind}.json"]}.get(how, [])
    for name in names:
        if name.rpartition("/")[2] not in silent:
            at = str(folder / name) if how != "missing" or name[-4:] not in ("json", "yaml") else name.partition("/")[0]
            (line,) = [line for line in err if at in line]
            assert line.partition(": ")[2].replace("<", "&lt;").replace("'", "&#x27;") in page
    if how != "missing":
        assert f"{kind}.json could not be read: " in page
        assert "trajectories.png could not be read: " in page
    assert "diagnosis.md could not be read" in page


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["study.yaml", "study.db"])
def test_without_the_study_itself_nothing_can_be_said(copy: Path, run: Callable, name: str, how: str) -> None:
    folder = copy / "confirm"
    damage(folder / name, how)
    before = (folder / name).stat().st_size if (folder / name).is_file() else None
    code, out, err = run(report, f"study={folder}")
    assert (code, out, len(err)) == (2, "", 1)
    assert name in err[0] or (how == "missing" and "no such study" in err[0])
    code, out, err = run(lambda _: harness.sweep(copy, "sweep.name=confirm", *CONFIRM).run())
    assert (code, len(err)) == (2, 1)
    assert name in err[0] or (how == "missing" and "holds something else" in err[0])
    assert before is None or (folder / name).stat().st_size == before


@pytest.mark.parametrize(("kind", "how"), BOTH)
def test_a_sweep_goes_on_and_writes_what_it_can_anew(copy: Path, run: Callable, kind: str, how: str) -> None:
    folder = copy / kind
    names = [f"{kind}.json", "trial_0001/trial.json", "trial_0000/diagnosis.md", "trial_0000/result.json"]
    names += ["trial_0000/eval.json", "trial_0001/config.yaml", "trial_0000/metrics.jsonl", "report.html"]
    again = ["confirm/trial_0000/seed_*/eval_rooms.npz", "best/config.yaml"] if kind == "confirm" else []
    names += [str(next(folder.glob(name)).relative_to(folder)) for name in again]
    folders = how == "a folder"  # what would have to be written is a mistake then
    for name in names:
        if not folders or name.rpartition("/")[2] in ("trial.json", "eval_rooms.npz", "eval.json", "result.json"):
            damage(folder / name, how)
    screen = harness.Quiet()
    driver = harness.sweep(copy, f"sweep.name={kind}", *KINDS[kind], screen=screen)
    assert driver.run() == 0
    told = [line for line in screen.notes if str(folder / "trial_0001") in line]
    assert len(told) == 1, screen.notes
    assert driver.status.findings
    assert (folder / f"{kind}.json").read_text().startswith('{\n "objective')
    assert "<h1>Sweep" in (folder / "report.html").read_text()
    if kind == "confirm":
        rooms = [line for line in screen.notes if "eval_rooms.npz" in line]
        assert len(rooms) == (how != "missing")
        assert all(re.search(r"eval_rooms.npz: damaged: expected the arrays", line) for line in rooms)


@pytest.mark.parametrize("how", HOW)
def test_other_commands_name_what_is_damaged(copy: Path, run: Callable, how: str) -> None:
    for name in ("trial.json", "config.yaml"):
        folder = copy / "confirm" / "trial_0000"
        shutil.copytree(folder, own := copy / name)
        damage(own / name, how)
        for function in (evaluate.run, rerun.rerun):
            code, out, err = run(function, f"run={own}")
            assert (code, out, len(err)) == (2, "", 1)
            assert name in err[0]
    damage(folder / "result.json", how)
    damage(folder / "metrics.jsonl", how)
    code, out, err = run(diagnose.run, f"run={folder}")
    assert len(err) == (code == 2)
    assert (code == 0) == (how == "cut in half")
    assert not err or "metrics.jsonl" in err[0]
