"""Sweeps on jobs that learn nothing: several seeds, confirmation, constraints and several objectives."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import harness
import pytest

from orchestrator.errors import UserError


def told(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "confirm.json").read_text()))


def test_a_winner_is_confirmed_on_fresh_seeds(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"success": 0.8, "spread": 0.01}, _1={"success": 0.9}, _2={"success": 0.7})
    recorder = harness.Recorded()
    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=4", "confirm.top_k=1", "confirm.seeds=3")
    driver = harness.driver(config, recorder=recorder)
    assert driver.run() == 0
    result = told(folder)
    assert (result["winner"], result["objective"]) == (1, "Eval/success_rate")
    assert len(set(result["seeds"]) - {config.seed}) == 3
    (comparison,) = result["comparisons"]
    assert (comparison["trial"], comparison["verdict"], comparison["rooms"]) == (1, "better", 20)
    ends = [comparison[end] for end in ("low", "difference", "high")]
    assert ends == pytest.approx([0.1] * 3)  # equal luck with equal seeds: paired, it cancels
    assert list(comparison["values"]) == list(result["baseline"]) == [str(seed) for seed in result["seeds"]]
    for number in (0, 1):
        for seed in result["seeds"]:
            own = folder / "confirm" / f"trial_{number:04d}" / f"seed_{seed}"
            again, first = ((f / "config.yaml").read_text() for f in (own, folder / f"trial_{number:04d}"))
            assert again == first.replace("seed: 1\n", f"seed: {seed}\n")
            assert ("end", f"confirm_{number:04d}_seed_{seed}", "finished") in recorder.calls
    assert harness.states(folder) == "CCCC"  # confirmations are none of the study's trials
    best = (folder / "best" / "config.yaml").read_text()
    assert "# Trial 1 " in best
    assert "better than the baseline" in best
    (update,) = (c[1] for c in recorder.calls if c[0] == "update")
    assert update["metrics"]["Confirm/difference"] == {1: pytest.approx(0.1)}
    assert update["tags"]["confirmed"] == 1
    assert next(c for c in recorder.calls if c[0] == "champion")[2] == "study"
    assert driver.status.findings[0].startswith("better than the baseline: trial 1, by +0.1000 Eval/success_rate")
    assert driver.status.again == ("the winner", "+best=config")


def test_where_nothing_better_is_shown_the_best_is_the_baseline(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"success": 0.8, "spread": 0.02}, _1={"success": 0.9}, confirm={"success": 0.8})
    recorder = harness.Recorded()
    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=3", "confirm.top_k=2", "confirm.seeds=3")
    driver = harness.driver(config, recorder=recorder)
    assert driver.run() == 0
    assert driver.status.best == (1, pytest.approx(0.9 + 0.02 * (7919 % 101 / 50 - 1)))
    result = told(folder)
    assert result["winner"] is None
    assert [c["verdict"] for c in result["comparisons"]] == ["not shown", "not shown"]
    assert "# Trial 0 " in (folder / "best" / "config.yaml").read_text()
    assert driver.status.findings[0].startswith("nothing better than the baseline was shown")
    assert not [c for c in recorder.calls if c[0] == "champion"]


def test_a_confirmed_study_given_again_starts_nothing_and_goes_on_with_more(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"success": 0.8}, _1={"success": 0.9}, _3={"success": 0.95}, confirm_3={"success": 0.85})
    confirm = ("confirm.top_k=1", "confirm.seeds=3")
    assert harness.sweep(tmp_path, "sweep.n_trials=3", *confirm).run() == 0
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.suffix in (".json", ".yaml", ".jsonl")}
    assert len([p for p in before if p.name == "result.json"]) == 3 + 6
    again = harness.sweep(tmp_path, "sweep.n_trials=3", *confirm)
    assert again.run() == 0
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert again.status.findings[0].startswith("better than the baseline: trial 1")
    assert harness.sweep(tmp_path, "sweep.n_trials=4", *confirm).run() == 0
    starts = {str(f.parent.relative_to(folder)): len(f.read_text().splitlines()) for f in folder.rglob("starts")}
    assert set(starts.values()) == {1}  # nothing twice
    assert len(starts) == 4 + 9
    result = told(folder)
    assert [c["trial"] for c in result["comparisons"]] == [3, 1]  # what was confirmed before is compared again
    assert (result["winner"], result["words"].partition(", by ")[0]) == (
        1,
        "trial 3 was the best of the search; on fresh seeds trial 1 was better than the baseline",
    )
    page = (folder / "report.html").read_text()
    assert "Trial 3 was the best of the search; on fresh seeds trial 1 was better" in page
    remarks = dict(re.findall(r"<td>(\d+)<td>finished<td class=words>([^<\n]*)", page))
    assert (remarks["1"], remarks["3"]) == ("confirmed winner", "best of the search")


def test_a_failed_seed_of_a_confirmation_is_never_averaged_away(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"success": 0.8}, _1={"success": 0.9}, confirm_1={"do": "diverge"})
    assert harness.sweep(tmp_path, "sweep.n_trials=2", "confirm.top_k=1", "confirm.seeds=3").run() == 0
    (comparison,) = told(folder)["comparisons"]
    assert (comparison["verdict"], told(folder)["winner"]) == ("failed", None)
    assert "diverged: loss is nan" in comparison["reason"]


def test_a_trial_of_several_seeds_is_told_as_their_mean(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"success": 0.5}, seed_2={"success": 0.7}, seed_3={"success": 0.9})
    recorder = harness.Recorded()
    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=2", "sweep.seeds_per_trial=3")
    driver = harness.driver(config, recorder=recorder)
    assert driver.run() == 0
    for trial in harness.study_trials(folder):
        assert trial.value == pytest.approx(0.7)
        assert trial.user_attrs["spread"] == {"Eval/success_rate": pytest.approx(0.2)}
    seeds = {json.loads(f.read_text())["seed"]: f.parent.name for f in folder.glob("trial_0001/*/trial.json")}
    assert seeds == {1: "seed_1", 2: "seed_2", 3: "seed_3"}
    (update,) = (c[1] for c in recorder.calls if c[0] == "update")
    assert update["metrics"]["Search/Eval/success_rate_spread"] == {n: pytest.approx(0.2) for n in (0, 1)}
    assert ("end", "trial_0001_seed_3", "finished") in recorder.calls
    assert [v.state for v in driver.status.views.values()] == ["finished", "finished"]


def test_a_trial_one_of_whose_seeds_fails_has_failed(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"success": 0.5, "seconds": 0.05}, seed_1={"do": "diverge", "seconds": 0.01})
    driver = harness.sweep(tmp_path, "sweep.n_trials=2", "sweep.seeds_per_trial=4", "algorithm.iterations=20")
    assert driver.run() == 0
    assert harness.states(folder) == "FF"
    for trial in harness.study_trials(folder):
        assert trial.user_attrs["reason"] == "diverged: loss is nan at iteration 5 (seed 1)"
    results = [json.loads((folder / "trial_0000" / f"seed_{s}" / "result.json").read_text()) for s in (1, 2, 3, 4)]
    assert [r["status"] for r in results] == ["failed", "pruned", "pruned", "pruned"]  # and no more time is spent
    assert "seed 1 failed" in results[3]["reason"]
    assert not (folder / "trial_0000" / "seed_4" / "starts").exists()


def test_a_failed_seed_leaves_the_result_of_another_that_nobody_has_told_yet(tmp_path: Path) -> None:
    """Both jobs ended after their driver was gone."""
    folder = tmp_path / "study"
    harness.behave(folder, all={"seconds": 0.5})
    config = harness.configure(tmp_path, *harness.SWEEP, "sweep.n_trials=1", "sweep.seeds_per_trial=2")
    screen = harness.Quiet()
    screen.on_show = lambda status: None if status.preparing or status.stopping else signal.raise_signal(signal.SIGINT)
    assert harness.driver(config, screen).run() == 130
    results = {
        "seed_1": '{"status": "failed", "reason": "diverged: loss is nan"}',
        "seed_2": '{"status": "finished", "reason": null, "train_seconds": 3.0}',
    }
    for seed, result in results.items():
        (folder / "trial_0000" / seed / "result.json").write_text(result)
    recorder = harness.Recorded()
    assert harness.driver(config, recorder=recorder).run() == 0
    assert (folder / "trial_0000" / "seed_2" / "result.json").read_text() == results["seed_2"]
    assert [call[1:] for call in recorder.calls if call[0] == "end"] == [
        ("trial_0000_seed_1", "failed"),
        ("trial_0000_seed_2", "finished"),
    ]
    (trial,) = harness.study_trials(folder)
    assert (trial.state.name, trial.user_attrs["reason"]) == ("FAIL", "diverged: loss is nan (seed 1)")


def test_pruning_compares_means_over_all_seeds(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    # One unlucky seed alone would be far behind.
    harness.behave(folder, all={"success": 0.9, "seconds": 0.03}, seed_2={"success": 0.3}, _3={"success": 0.1})
    pruner = "sweep.pruner={_target_: optuna.pruners.PercentilePruner, percentile: 75.0, n_startup_trials: 1}"
    few = ("sweep.n_trials=4", "sweep.seeds_per_trial=2", "algorithm.iterations=30")
    assert harness.sweep(tmp_path, *few, pruner).run() == 0
    assert harness.states(folder) == "CCCP"
    standings = [t.intermediate_values for t in harness.study_trials(folder)]
    assert standings[1] == {step: pytest.approx(0.6) for step in range(2, 31, 2)}


WILCOXON = "sweep.pruner={_target_: optuna.pruners.WilcoxonPruner, p_threshold: 0.2}"


def test_the_wilcoxon_pruner_is_told_each_seed(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"success": 0.9, "spread": 0.01}, _2={"success": 0.2})
    arguments = ("sweep.n_trials=3", "sweep.seeds_per_trial=6", WILCOXON)
    assert harness.sweep(tmp_path, *arguments).run() == 0
    assert harness.states(folder) == "CCP"
    first, _, pruned = harness.study_trials(folder)
    assert list(first.intermediate_values) == list(range(6))
    assert len(pruned.intermediate_values) < 6
    assert "too far behind" in pruned.user_attrs["reason"]


def test_a_trial_of_which_not_all_seeds_were_trained_has_no_score(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"success": 0.5, "spread": 0.2}, _2={"success": 0.4})
    arguments = ("sweep.n_trials=3", "sweep.seeds_per_trial=6", WILCOXON)
    for _ in ("searched", "given again"):
        driver = harness.sweep(tmp_path, *arguments)
        assert driver.run() == 0
        view = driver.status.views["trial_0002"]
        assert (view.state, view.value) == ("pruned", None)
        assert driver.status.best == (0, harness.study_trials(folder)[0].value)
    assert [trial.value is None for trial in harness.study_trials(folder)] == [False, False, True]


PARETO = (
    "sweep.objective=null",
    "+sweep.objectives={Eval/success_rate: {direction: maximize, worst: 0.0},"
    " Eval/time_to_goal: {direction: minimize, worst: 20.0}}",
    "+sweep.constraints={Eval/collision_rate: {max: 0.05}}",
)


def test_a_trial_that_breaks_a_constraint_is_never_the_best(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    safe, reckless = {"eval": {"Eval/collision_rate": 0.04}}, {"eval": {"Eval/collision_rate": 0.2}}
    harness.behave(folder, all={"success": 0.5} | safe, _1={"success": 0.9} | reckless, _2={"success": 0.7} | safe)
    constraint = "+sweep.constraints={Eval/collision_rate: {max: 0.05}}"
    driver = harness.sweep(tmp_path, "sweep.n_trials=4", constraint, "confirm.top_k=1", "confirm.seeds=3")
    assert driver.run() == 0
    assert driver.status.best == (2, pytest.approx(0.7))
    assert driver.status.views["trial_0001"].reason == "breaks Eval/collision_rate <= 0.05 (0.200, by 0.150)"
    assert harness.study_trials(folder)[1].constraints == {"Eval/collision_rate": pytest.approx(0.15)}
    assert told(folder)["winner"] == 2


def test_a_winner_must_keep_the_constraints_on_fresh_seeds_too(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    safe, reckless = {"eval": {"Eval/collision_rate": 0.04}}, {"eval": {"Eval/collision_rate": 0.2}}
    harness.behave(folder, all={"success": 0.5} | safe, _1={"success": 0.9}, confirm_1=reckless)
    constraint = "+sweep.constraints={Eval/collision_rate: {max: 0.05}}"
    assert harness.sweep(tmp_path, "sweep.n_trials=2", constraint, "confirm.top_k=1", "confirm.seeds=3").run() == 0
    (comparison,) = told(folder)["comparisons"]
    assert (comparison["verdict"], told(folder)["winner"]) == ("breaks a constraint", None)
    assert comparison["low"] > 0  # by its success alone it would have won


def test_a_front_with_its_hypervolume(tmp_path: Path) -> None:
    folder = tmp_path / "study"

    def came_to(success: float, seconds: float | None, collisions: float = 0.0) -> dict[str, Any]:
        time_to_goal = {} if seconds is None else {"Eval/time_to_goal": seconds}
        return {"success": success, "eval": {"Eval/collision_rate": collisions, **time_to_goal}}

    harness.behave(
        folder,
        _0=came_to(0.8, 10.0),
        _1=came_to(0.9, 15.0),
        _2=came_to(0.7, 12.0),  # worse than the baseline in both
        _3=came_to(0.99, 5.0, collisions=0.5),  # best in both, and reckless
        _4=came_to(0.0, None),  # never reached a goal
    )
    recorder = harness.Recorded()
    config = harness.configure(tmp_path, *harness.SWEEP, *PARETO, "sweep.n_trials=5")
    driver = harness.driver(config, recorder=recorder)
    assert driver.run() == 0
    front = json.loads((folder / "front.json").read_text())
    assert [point["trial"] for point in front["front"]] == [0, 1]
    assert front["front"][1]["values"] == {"Eval/success_rate": 0.9, "Eval/time_to_goal": 15.0}
    assert list(front["broken"]) == ["3"]
    volumes = [8.0, 8.0 + 0.1 * 5.0]  # 0.8 x (20 - 10), and what trial 1 adds
    by_trial = {0: volumes[0], 1: volumes[1], 2: volumes[1], 3: volumes[1], 4: volumes[1]}
    (update,) = (c[1] for c in recorder.calls if c[0] == "update")
    assert update["metrics"]["Search/hypervolume"] == pytest.approx(by_trial)
    assert update["tags"]["front"] == "0, 1"
    assert harness.study_trials(folder)[4].values == [0.0, 20.0]
    told = driver.status.findings
    assert told[0].startswith("Pareto front: 2 trials within Eval/collision_rate <= 0.05 that no other beats")
    assert told[1].split() == ["trial", "success_rate", "time_to_goal", "collision_rate"]
    assert told[2].split() == ["maximize", "minimize", "<=", "0.05"]
    assert told[3].split() == ["0", "(baseline)", "0.8000", "10.0000", "0.0000"]
    assert told[5] == "the baseline (trial 0) is on the front, none beats it in everything"
    assert told[6] == "  trial 3 is not on it: breaks Eval/collision_rate <= 0.05 (0.500, by 0.450)"
    assert driver.status.again == ("trial 1 of the front", "+front=trial_0001")  # the baseline is today's config
    page = (folder / "report.html").read_text()
    assert "maximize Eval/success_rate and minimize Eval/time_to_goal, each the mean" in page
    assert "Constraint: Eval/collision_rate &lt;= 0.05; 1 of the 5 finished trials break it: trial 3." in page
    remarks = dict(re.findall(r"<td>(\d+)<td>finished<td class=words>([^<\n]*)", page))
    assert remarks["0"] == "baseline; on the front"
    assert (remarks["1"], remarks["2"]) == ("on the front", "")
    assert remarks["3"] == "breaks Eval/collision_rate &lt;= 0.05 (0.500, by 0.450)"
    assert "Eval/success_rate<br>(maximize)" in page
    assert sorted(f.name for f in (folder / "front").iterdir()) == ["trial_0000.yaml", "trial_0001.yaml"]
    assert "weight" in (folder / "front" / "trial_0001.yaml").read_text()


@pytest.mark.parametrize("kind", [("confirm.top_k=1", "confirm.seeds=3"), ("confirm.top_k=0",), PARETO])
def test_where_no_trial_finished_the_first_failure_says_why(tmp_path: Path, kind: tuple[str, ...]) -> None:
    folder, screen = tmp_path / "study", harness.Quiet()
    harness.behave(folder, all={"do": "mistake", "at": 1})
    driver = harness.sweep(tmp_path, "sweep.n_trials=2", *kind, screen=screen)
    assert driver.run() == 0
    why = "policy.hidden_dims=[8]: expected [16, 16], as in its checkpoint"
    assert [line for line in driver.status.findings if "finished" in line] == [f"no trial finished: {why}"]
    page = (folder / "report.html").read_text()
    assert f"<p class=verdict>No trial finished: {why}.\n" in page.replace("</p>", "\n")
    # Both ended before their first iteration: there is nothing that could not be read.
    assert (folder / "trial_0000" / "metrics.jsonl").read_bytes() == b""
    assert screen.notes == []
    assert "could not be read" not in page


def test_where_no_trial_is_left_to_confirm_none_is_counted(tmp_path: Path) -> None:
    harness.behave(tmp_path / "study", all={"success": 0.8}, _1={"do": "diverge"})
    driver = harness.sweep(tmp_path, "sweep.n_trials=2", "confirm.top_k=1", "confirm.seeds=3")
    assert driver.run() == 0
    assert driver.status.confirmations == 0
    assert driver.status.findings[0].startswith("nothing to confirm")


def test_trials_that_drove_in_other_rooms_are_not_compared(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    harness.behave(folder, all={"set": "aaa"}, _2={"set": "bbb"})
    other = r"trial_0002 was evaluated on another set 'dense' \(bbb\) than trial_0000 \(aaa\)"
    with pytest.raises(UserError, match=other):
        harness.sweep(tmp_path, "sweep.n_trials=4").run()
    assert harness.states(folder)[:3] == "CCR"
    with pytest.raises(UserError, match=other):  # nor is it gone on with
        harness.sweep(tmp_path, "sweep.n_trials=4")
