"""The report of a sweep tells what its folders hold."""

import base64
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from orchestrator import health
from orchestrator.config import compose
from orchestrator.errors import UserError
from orchestrator.files import Careful
from orchestrator.job import spec
from orchestrator.report.__main__ import report
from orchestrator.report.pictures import short
from orchestrator.report.rows import rows, spearman
from orchestrator.report.sweep import write
from orchestrator.search.base import Ended, Trial
from orchestrator.search.objective import Judge, Score

GOAL = "task.rewards.goal.weight"
COLLISION = "task.rewards.collision.weight"


def make_config(*overrides):
    return compose("+sweep=reward_weights", "sweep.name=study", "device=cpu", *overrides)


def make_trial(folder: Path, config, number: int, state="finished", reason=None):
    """A trial whose success rises to 0.5 + number / 100, with goal weight 10 + number."""
    own = spec.TrialSpec(
        study="study",
        number=number,
        seed=1,
        params={GOAL: 10.0 + number, COLLISION: -5.0 - number % 3},
        folder=folder / f"trial_{number:04d}",
        config=config,
    )
    own.folder.mkdir()
    last = 0.5 + number / 100
    for step in (12, 24, 36, 48):
        metrics = {"Eval/success_rate": last if step > 12 else 0.1, "Eval/collision_rate": 0.3 - number / 100}
        metrics |= {"Eval/time_to_goal": 5.0} if number % 2 else {"Loss/value": 1.0}
        with open(own.folder / "metrics.jsonl", "a") as log:
            log.write(json.dumps({"step": step, "time": 1.0 * step, "metrics": metrics}) + "\n")
    rooms = np.full((4, 100), 0.0)
    rooms[0, :10] = rooms[1:, : 50 + number] = 1.0
    np.savez(own.folder / "eval_rooms.npz", step=np.array([12, 24, 36, 48]), success_rate=rooms)
    (own.folder / "diagnosis.md").write_text(
        "# What the curves of 48 iterations show\n\n"
        "- **still_rising** information, iterations 36 to 48: it rises. Train on.\n"
    )
    score = Score((last,)) if state == "finished" else None
    return Ended(Trial(number, (own,)), state, score, reason, params=own.params)


@pytest.fixture
def study(tmp_path):
    """Folder, config and trials: nine finished, one failed."""
    config = make_config()
    trials = [make_trial(tmp_path, config, n) for n in range(9)]
    trials.append(make_trial(tmp_path, config, 9, "failed", "diverged: <Loss/value>"))
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "trial_0000" / "trajectories.png")
    return tmp_path, config, trials


def text_of(page):
    return re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)


class TestRows:
    def test_metrics_are_means_over_the_last_evaluations_as_the_objective_is(self, study):
        _, config, trials = study
        careful = Careful()
        np.savez(trials[2].trial.runs[0].folder / "eval_rooms.npz", success_rate=np.zeros(3))
        (trials[3].trial.runs[0].folder / "eval_rooms.npz").unlink()
        known = rows(trials, Judge(config), careful)
        assert [row.interval for row in known[2:4]] == [None, None]
        assert len(careful.lines) == 1  # the other file is not there, and nobody misses it
        row = known[4]
        assert row.metrics["Eval/success_rate"] == pytest.approx(0.54)
        # By hand: 54 of 100 rooms are reached in each of the last three evaluations, s^2 = 0.54 * 0.46 * 100 / 99.
        half = 1.959964 * math.sqrt(0.54 * 0.46 / 99)
        assert row.interval == (pytest.approx(0.54 - half), pytest.approx(0.54 + half))
        assert all(row.interval[0] < row.value < row.interval[1] for row in known if row.interval)
        assert row.curves["Eval/success_rate"] == [(12, 0.1), (24, 0.54), (36, 0.54), (48, 0.54)]
        assert "Eval/time_to_goal" not in row.metrics
        assert list(row.verdicts) == ["still_rising"]

    def test_rank_correlation(self):
        x = list(range(10))
        assert spearman(x, [v**3 for v in x]) == (pytest.approx(1.0), True)
        assert spearman(x, [-v for v in x]) == (pytest.approx(-1.0), True)
        # By hand: sum d^2 = 2 for one neighbouring swap, rho = 1 - 6 * 2 / (10 * 99).
        assert spearman(x, [1, 0, *range(2, 10)])[0] == pytest.approx(1 - 12 / 990)
        assert math.isnan(spearman(x[:5], x[:5])[0])  # too few
        assert math.isnan(spearman(x, [None] * 5 + [1.0] * 5)[0])
        assert spearman(x, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3])[1] is False


class TestPage:
    def test_everything_that_was_found_is_in_one_file(self, study):
        folder, config, trials = study
        health.note(folder, {"doctor": "passed", "doctor.checks": "17 checks, nothing failed", "git.commit": "1234"})
        page = write(folder, config, trials, Careful(), folder / "pictures").read_text()
        text = text_of(page)
        assert "Environment examined: 17 checks, nothing failed." in text
        assert "Not confirmed on fresh seeds" in text
        assert "10 trials (9 finished, 1 failed)" in text
        for title in ("Trials", "Learning", "Each searched value alone", "What the searched values do", "Episodes"):
            assert title in text
        assert "diverged: &lt;Loss/value&gt;" in page  # whatever a reason says, it is text
        assert "still_rising" in text
        pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
        names = ["correlations", "episodes_0000", "learning", "slices", "trials"]
        files = sorted((folder / "pictures").iterdir())
        assert [file.stem for file in files] == names
        assert {file.read_bytes() for file in files} == {base64.b64decode(picture) for picture in pictures}
        assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
        assert not re.findall(r'(?:src|href)="(?!data:)', page)  # nothing that a colleague doesn't have
        kinds = {int(n): kind for kind, n in re.findall(r"<tr class='(\w*)'><td>(\d+)", page)}
        assert (kinds[0], kinds[4], kinds[8], kinds[9]) == ("baseline", "", "best", "other")

    def test_only_a_confirmed_winner_is_called_one(self, study):
        folder, config, trials = study
        comparison = {
            "trial": 8, "searched": 0.58, "values": {"7": 0.6, "9": 0.62}, "difference": 0.01, "low": -0.03,
            "high": 0.05, "verdict": "not shown", "reason": None, "rooms": 500,
        }  # fmt: skip
        confirmed = {
            "objective": "Eval/success_rate", "direction": "maximize", "seeds": [7, 9], "eval_set_hash": "x",
            "confidence": 0.95, "baseline": {"7": 0.6, "9": 0.6}, "comparisons": [comparison], "winner": None,
            "words": "nothing better than the baseline was shown",
        }  # fmt: skip
        (folder / "confirm.json").write_text(json.dumps(confirmed))
        text = text_of(write(folder, config, trials, Careful()).read_text())
        assert "nothing better than the baseline was shown" in text.lower()
        assert "seeds 7, 9, which the search never saw" in text

    def test_what_breaks_a_constraint_is_never_the_best(self, study):
        folder, _, trials = study
        config = make_config("+sweep.constraints={Eval/collision_rate:{max:0.2}}")
        scored = [replace(t, score=Score(t.score.values, (0.25 if t.trial.number == 8 else 0.1,))) for t in trials[:9]]
        page = write(folder, config, scored, Careful()).read_text()
        kinds = {int(n): kind for kind, n in re.findall(r"<tr class='(\w*)'><td>(\d+)", page)}
        assert (kinds[7], kinds[8]) == ("best", "broken")
        assert "breaks Eval/collision_rate &lt;= 0.2 (0.250, by 0.050)" in page
        assert "Constraint: Eval/collision_rate &lt;= 0.2; 1 of the 9 finished trials break it: trial 8." in page

    def test_a_study_of_one_trial_has_a_report_too(self, study):
        folder, config, trials = study
        health.note(folder, {"doctor": "off"})
        text = text_of(write(folder, config, trials[:1], Careful()).read_text())
        assert "1 trial (1 finished)" in text
        assert "Environment not examined: doctor=off." in text
        assert "0 trials" in text_of(write(folder, config, [], Careful()).read_text())


def test_names_as_people_say_them():
    assert [short(p) for p in (GOAL, "algorithm.gamma", "task.rewards.stuck.params.window", "seed")] == [
        "goal",
        "gamma",
        "stuck.window",
        "seed",
    ]


def test_mistakes(tmp_path):
    for arguments, told in (([], "study=<name"), (["study=nowhere"], "no such study"), (["stdy=x"], "'study'")):
        with pytest.raises(UserError, match=told):
            report(arguments)
