"""The study: proposals, restarts, and what samplers learn."""

import math
from pathlib import Path
from typing import Any

import harness
import optuna
import pytest

from orchestrator.config import Config
from orchestrator.errors import UserError
from orchestrator.search.objective import Judge, Score
from orchestrator.search.space import build
from orchestrator.search.study import Study, best_points


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return harness.configure(tmp_path_factory.mktemp("out"), *harness.SWEEP)


def open_study(folder: Path, config: Config) -> Study:
    space = build(config)
    assert config.sweep is not None
    return Study(folder / "study.db", config.sweep, space, Judge(config), config.seed, [space.today(config)])


def ask(study: Study) -> tuple[int, dict[str, Any]]:
    number = study.ask()
    return number, study.complete(number)


def score(value: float) -> Score:
    return Score((value,))


def test_trial_0_is_today_and_no_other_is(tmp_path: Path, config: Config) -> None:
    study = open_study(tmp_path, config)
    number, values = ask(study)
    assert (number, values) == (0, build(config).today(config))
    assert ask(study)[1] != values


def test_a_restart_repeats_no_draw_and_changes_none(tmp_path: Path, config: Config) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = open_study(tmp_path / "a", config)
    straight = []
    for _ in range(8):
        number, values = ask(one)
        one.tell(number, "finished", score(values["task.rewards.goal.weight"]))
        straight.append(values)
    restarted = []
    for _ in range(8):
        another = open_study(tmp_path / "b", config)
        number, values = ask(another)
        another.tell(number, "finished", score(values["task.rewards.goal.weight"]))
        restarted.append(values)
    assert restarted == straight
    assert len({tuple(v.values()) for v in straight}) == 8


def test_a_trial_asked_for_is_completed_under_its_number(tmp_path: Path, config: Config) -> None:
    number, values = ask(open_study(tmp_path, config))
    assert open_study(tmp_path, config).complete(number) == values
    assert len(open_study(tmp_path, config).trials()) == 1


def test_telling_twice_is_once(tmp_path: Path, config: Config) -> None:
    study = open_study(tmp_path, config)
    number, _ = ask(study)
    study.tell(number, "finished", score(0.5))
    study.tell(number, "failed", reason="diverged: later")
    again = open_study(tmp_path, config)
    again.tell(number, "finished", score(0.1))
    (trial,) = again.trials()
    assert (trial.state, trial.score, trial.reason) == ("finished", score(0.5), None)


def test_a_diverged_trial_is_failed_but_the_sampler_sees_the_worst(tmp_path: Path, config: Config) -> None:
    study = open_study(tmp_path, config)
    for value in (0.7, 0.4):
        study.tell(ask(study)[0], "finished", score(value))
    study.tell(ask(study)[0], "failed", reason="diverged: loss is nan")
    study.tell(ask(study)[0], "failed", reason="killed by SIGKILL (out of memory)")
    assert [t.state.name for t in study._study.get_trials()] == ["COMPLETE", "COMPLETE", "FAIL", "FAIL"]
    seen = study._seen._get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    assert [(t.number, t.value) for t in seen] == [(0, 0.7), (1, 0.4), (2, 0.4)]
    assert seen[2].params == study._study.get_trials()[2].params


def test_proposals_are_made_from_that_view(tmp_path: Path, config: Config) -> None:
    proposals = []
    for reason in ("diverged: loss is nan", "killed by SIGKILL"):
        folder = tmp_path / reason[:4]
        folder.mkdir()
        study = open_study(folder, config)
        for number in range(7):
            ask(study)
            study.tell(number, *(("failed", None, reason) if number in (3, 5) else ("finished", score(0.1 * number))))
        proposals.append(ask(study))
    assert proposals[0] != proposals[1]


def test_pruning_spares_the_baseline(tmp_path: Path, config: Config) -> None:
    overrides = [o for o in harness.SWEEP if "pruner" not in o]
    pruner = "sweep.pruner={_target_: optuna.pruners.PercentilePruner, percentile: 50.0, n_startup_trials: 1}"
    config = harness.configure(tmp_path, *overrides, "sweep.pruner=null", pruner)
    study = open_study(tmp_path, config)
    for _ in range(3):
        ask(study)
    assert not study.report(1, 10, 0.9)
    study.tell(1, "finished", score(0.9))
    assert not study.report(0, 10, 0.1)
    assert study.report(2, 10, 0.1)
    assert not study.report(2, 10, 0.1)  # a step is judged once


def test_default_pruners_leave_late_bloomers_alone(tmp_path: Path) -> None:
    for name in ("reward_weights", "ppo"):
        config = harness.configure(tmp_path, f"+sweep={name}")
        folder = tmp_path / name
        folder.mkdir()
        study = open_study(folder, config)
        for _ in range(5):
            number, _values = ask(study)
            for step in range(12, 121, 12):
                study.report(number, step, 0.9 * step / 120)
            study.tell(number, "finished", score(0.9))
        number, _values = ask(study)
        assert not any(study.report(number, step, 0.0) for step in range(12, 84, 12))  # not before 70 %
        assert not any(study.report(number, step, step / 120) for step in range(84, 121, 12))  # has caught up
        number, _values = ask(study)
        assert any(study.report(number, step, 0.0) for step in range(12, 121, 12))  # one that never does


@pytest.mark.parametrize(
    "name", ["TPESampler", "RandomSampler", "GPSampler", "CmaEsSampler", "QMCSampler", "NSGAIISampler"]
)
def test_any_sampler_of_optuna(tmp_path: Path, name: str) -> None:
    pytest.importorskip("cmaes" if name == "CmaEsSampler" else "scipy" if name == "QMCSampler" else "optuna")
    config = harness.configure(
        tmp_path, *harness.SWEEP, f"sweep.sampler._target_=optuna.samplers.{name}", "~sweep.sampler.n_startup_trials"
    )
    study = open_study(tmp_path, config)
    points = []
    for _ in range(6):
        number, values = ask(study)
        study.tell(number, "finished", score(values["task.rewards.goal.weight"]))
        points.append(tuple(values.values()))
    assert len(set(points)) == 6


def test_best_points_of_an_earlier_study(tmp_path: Path, config: Config) -> None:
    folder = tmp_path / "o?x=1#y%41 z é'"  # what means something in a URI, too
    folder.mkdir()
    study = open_study(folder, config)
    asked = []
    for value in (0.3, 0.9, 0.6):
        number, values = ask(study)
        study.tell(number, "finished", score(value))
        asked.append(values)
    assert [file.name for file in folder.iterdir()] == ["study.db"]
    space = build(config)
    today = space.today(config)
    assert best_points(folder / "study.db", "study", space, today, 2) == [asked[1], asked[2]]

    weight = "task.rewards.goal.weight"
    partly = harness.configure(tmp_path, "+sweep=ppo", f'+sweep.params={{{weight}: "interval(0, 1000)"}}')
    space = build(partly)
    today = space.today(partly)
    found = best_points(folder / "study.db", "study", space, today, 2)
    assert found == [{**today, weight: asked[n][weight]} for n in (1, 2)]
    space = build(harness.configure(tmp_path, "+sweep=ppo"))
    with pytest.raises(UserError, match=r"sweep.warm_start=study: 0 of its 3 points fit this space"):
        best_points(folder / "study.db", "study", space, {}, 2)


def test_constraints_are_told_by_how_much_they_are_broken(tmp_path: Path) -> None:
    constraint = "+sweep.constraints={Eval/collision_rate: {max: 0.05}}"
    config = harness.configure(tmp_path, *harness.SWEEP, constraint)
    study = open_study(tmp_path, config)
    for success, collisions in ((0.5, 0.01), (0.9, 0.25), (0.7, math.nan)):
        study.tell(ask(study)[0], "finished", Score((success,), (collisions,)))
    violations = [t.constraints["Eval/collision_rate"] for t in study._study.get_trials()]
    assert violations == pytest.approx([-0.04, 0.2, math.inf])
    again = open_study(tmp_path, config)
    assert [t.score.bounded[0] for t in again.trials() if t.score] == pytest.approx([0.01, 0.25, math.nan], nan_ok=True)
    assert again.front() == [0]
    assert len(ask(again)[1]) == 10  # and the sampler can live with it


@pytest.mark.parametrize("sampler", ["TPESampler", "NSGAIISampler", "RandomSampler", "GPSampler"])
def test_several_objectives_with_a_diverged_trial(tmp_path: Path, sampler: str) -> None:
    overrides = (f"sweep.sampler={{_target_: optuna.samplers.{sampler}}}", "~sweep.sampler.n_startup_trials")
    config = harness.configure(tmp_path, "+sweep=pareto", *overrides)
    study = open_study(tmp_path, config)
    came_to = [Score((0.8, 5.0, 0.1), (0.1,)), Score((0.9, 6.0, 0.2), (0.1,)), Score((0.7, 7.0, 0.3), (0.1,))]
    for score_ in came_to:
        study.tell(ask(study)[0], "finished", score_, None, (0.1, 0.2, 0.3))
    study.tell(ask(study)[0], "failed", reason="diverged: loss is nan")
    assert study.front() == [0, 1]
    seen = study._seen._get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    assert seen[3].values == [0.7, 7.0, 0.3]  # as bad as the worst in each
    assert len(ask(study)[1]) == 7
    assert study.trials()[1].spread == (0.1, 0.2, 0.3)
