"""Every verdict on a curve made to show it, and on healthy ones."""

import json
import math
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from ailments import AILMENTS, EVERY, LENGTH, SETTINGS, healthy, run

from orchestrator.record import wal
from orchestrator.report.curves import Curve, RunCurves, gather
from orchestrator.report.diagnosis import (
    CODES,
    DIAGNOSIS,
    as_markdown,
    attach,
    diagnose,
    read,
    summarise,
)
from orchestrator.report.faults import Verdict
from orchestrator.report.trend import trend


def found(curves: RunCurves, level: str = "warning") -> set[str]:
    return {verdict.code for verdict in diagnose(curves).verdicts if verdict.level == level}


def verdict_on(curves: RunCurves, code: str) -> Verdict:
    return next(verdict for verdict in diagnose(curves).verdicts if verdict.code == code)


def test_all_codes_of_the_table_are_looked_for() -> None:
    assert set(CODES) == {name.split()[0] for name in AILMENTS}
    assert len(CODES) == 18


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_training_gets_no_warning_and_is_judged_on_everything(seed: int) -> None:
    diagnosis = diagnose(run(healthy(seed)))
    assert [verdict for verdict in diagnosis.verdicts if verdict.level == "warning"] == []
    assert not {"slow_env", "slow_learner", "saturation", "kl_overshoot"} & {v.code for v in diagnosis.verdicts}
    assert diagnosis.not_judged == {}
    assert diagnosis.iterations == LENGTH


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", AILMENTS)
def test_each_ailment_is_named_and_no_other(name: str, seed: int) -> None:
    level, change = AILMENTS[name]
    columns = healthy(seed)
    change(columns)
    curves = run(columns)
    code = name.split()[0]
    verdict = verdict_on(curves, code)
    assert verdict.level == level
    assert found(curves) == ({code} if level == "warning" else set())
    first, last = verdict.iterations
    assert 1 <= first <= last <= LENGTH
    assert verdict.seen
    assert verdict.advice
    assert not verdict.advice.endswith(".")


class TestFigures:
    """What a verdict says is what the curves hold."""

    def changed(self, name: str, seed: int = 0) -> RunCurves:
        columns = healthy(seed)
        AILMENTS[name][1](columns)
        return run(columns)

    def test_learning_rate(self) -> None:
        verdict = verdict_on(self.changed("lr_at_floor"), "lr_at_floor")
        assert 40 / 120 <= verdict.figure <= 0.4
        assert verdict.iterations[1] == 120
        verdict = verdict_on(self.changed("lr_at_ceiling"), "lr_at_ceiling")
        assert verdict.iterations[0] == 1
        assert "updates are too timid" in verdict.seen

    def test_first_epoch_kl_names_the_iterations(self) -> None:
        verdict = verdict_on(self.changed("first_epoch_kl"), "first_epoch_kl")
        assert verdict.iterations == (1, 35)  # 0.05 exp(-i / 4) > 1e-5  <=>  i < 34.1, counted from 0
        assert verdict.figure == pytest.approx(0.05 * np.exp(-17 / 4), rel=1e-6)

    def test_std(self) -> None:
        assert verdict_on(self.changed("std_collapse"), "std_collapse").iterations[0] == 11  # 0.5 exp(-10 / 4) = 0.04
        verdict = verdict_on(self.changed("std_explosion"), "std_explosion")
        # medians of the first and the last tenth: 0.3 + 0.55 * 5.5 / 59 and 0.9 - 0.05 * 5.5 / 59
        assert verdict.figure == pytest.approx(0.895 / 0.351, abs=0.02)

    def test_divergence_names_the_first_iteration_and_the_metric(self) -> None:
        verdict = verdict_on(self.changed("diverged"), "diverged")
        assert verdict.iterations[0] == 101
        assert verdict.seen == "Loss/value not finite, first at iteration 101"
        verdict = verdict_on(self.changed("diverged (state)"), "diverged")
        assert verdict.iterations == (50, 50)
        assert "in up to 2.0% of episodes" in verdict.seen

    def test_reward_hacking_names_what_pays(self) -> None:
        verdict = verdict_on(self.changed("reward_hacking"), "reward_hacking")
        assert "the term 'near_obstacle' grew most" in verdict.seen
        assert verdict.figure < -0.2

    def test_synchronous_timeouts_name_the_burst(self) -> None:
        verdict = verdict_on(self.changed("synchronous_timeouts"), "synchronous_timeouts")
        assert verdict.iterations == (7, 7)  # 20 s / 0.1 s / 32 = 6.25 iterations
        assert verdict.figure == pytest.approx(0.75, abs=0.05)

    def test_few_time_outs_of_a_fast_learner_are_no_burst(self) -> None:
        columns = healthy(0)
        columns["Episode_Termination/timeout"][6:12] = 0.04
        for ended, told in ((40.0, False), (400.0, True)):  # even ages could bring 256 / 6.25 = 41 time-outs
            columns["Episode_Termination/timeout"][6], columns["Train/episodes"][6] = 0.9, ended
            found = {verdict.code: verdict.figure for verdict in diagnose(run(columns)).verdicts}
            assert ("synchronous_timeouts" in found) == told
            timeouts = columns["Episode_Termination/timeout"][6:12] * columns["Train/episodes"][6:12]
            assert timeouts[0] > 0.5 * timeouts.sum()

    def test_time(self) -> None:
        assert verdict_on(self.changed("slow_env"), "slow_env").figure == pytest.approx(0.72 / 0.88, abs=0.01)
        assert verdict_on(self.changed("slow_learner"), "slow_learner").figure == pytest.approx(0.96 / 1.2, abs=0.01)


class TestLevels:
    """The same sight can be a fault, or only good to know."""

    def test_one_that_drives_at_its_limit_and_arrives_is_no_fault(self) -> None:
        columns = healthy(0)
        columns["Policy/action_saturation_vx"] += 0.6
        assert verdict_on(run(columns), "saturation").level == "information"
        columns["Eval/success_rate"] *= 0.3
        assert verdict_on(run(columns), "saturation").level == "warning"

    def test_a_flat_end_is_a_fault_only_where_nothing_was_reached(self) -> None:
        columns = healthy(0)
        columns["Eval/success_rate"][80:] = np.where(np.isnan(columns["Eval/success_rate"][80:]), np.nan, 0.9)
        verdict = verdict_on(run(columns), "plateau")
        assert (verdict.level, verdict.advice) == ("information", "A shorter training would have done")

    def test_an_adaptive_schedule_may_overshoot_for_a_while_a_fixed_one_may_not(self) -> None:
        columns = healthy(0)
        columns["PPO/kl_overshoot"] += 0.15
        assert verdict_on(run(columns), "kl_overshoot").level == "information"
        fixed = run(columns, SETTINGS | {"algorithm.schedule": "fixed"})
        assert verdict_on(fixed, "kl_overshoot").level == "warning"

    def test_no_bonus_no_blame(self) -> None:
        columns = healthy(0)
        AILMENTS["entropy_only"][1](columns)
        assert "entropy_only" not in found(run(columns, SETTINGS | {"algorithm.entropy_coef": 0.0}))

    def test_a_small_std_after_success_is_a_policy_that_knows_its_way(self) -> None:
        columns = healthy(0)
        columns["Policy/mean_std"][70:] = 0.03
        assert found(run(columns)) == set()

    def test_a_return_that_rises_with_success_is_learning(self) -> None:
        columns = healthy(0)
        columns["Train/mean_reward"] += np.linspace(0, 100, LENGTH)
        assert found(run(columns)) == set()


class TestWantOfData:
    def test_what_was_not_logged_is_not_judged(self) -> None:
        columns = healthy(0)
        for name in ("PPO/kl_first", "Policy/obs_mean_abs", "Train/episodes"):
            del columns[name]
        not_judged = diagnose(run(columns)).not_judged
        assert not_judged == {
            "blind_policy": "Policy/obs_mean_abs was not logged",
            "first_epoch_kl": "PPO/kl_first was not logged",
            "synchronous_timeouts": "Train/episodes was not logged",
        }

    def test_settings_that_rule_a_fault_out(self) -> None:
        columns = healthy(0)
        _, change = AILMENTS["lr_at_floor"]
        change(columns)
        diagnosis = diagnose(
            run(columns, SETTINGS | {"algorithm.schedule": "fixed", "policy.obs_normalization": False})
        )
        assert diagnosis.not_judged == {
            "blind_policy": "policy.obs_normalization is off",
            "lr_at_floor": "algorithm.schedule is fixed",
            "lr_at_ceiling": "algorithm.schedule is fixed",
        }

    def test_without_the_config_only_what_needs_it_is_left_out(self) -> None:
        for code in set(AILMENTS) - {"synchronous_timeouts"}:
            columns = healthy(1)
            AILMENTS[code][1](columns)
            assert code.split()[0] in {verdict.code for verdict in diagnose(run(columns, {})).verdicts}, code
        assert diagnose(run(healthy(1), {})).not_judged == {"synchronous_timeouts": "task.episode_length is not known"}

    def test_a_rate_that_never_moves_is_a_fixed_one(self) -> None:
        columns = healthy(0)
        columns["Loss/learning_rate"][:] = 1e-2
        assert "never moves" in diagnose(run(columns, {})).not_judged["lr_at_ceiling"]
        assert found(run(columns)) == {"lr_at_ceiling"}

    def test_what_rsl_rl_itself_logs_is_enough_for_some(self) -> None:
        """A plain event file: no evaluation, no causes of ends."""
        columns = healthy(0)
        plain = {
            name: columns[name]
            for name in ("Loss/learning_rate", "Policy/mean_std", "Train/mean_reward", "Perf/collection_time")
        }
        plain["Perf/learning_time"] = columns["Perf/learning_time"]
        diagnosis = diagnose(run(plain, {}))
        judged = set(CODES) - set(diagnosis.not_judged)
        assert judged == {
            "lr_at_floor",
            "lr_at_ceiling",
            "std_explosion",
            "plateau",
            "still_rising",
            "slow_env",
            "slow_learner",
        }

    def test_too_short_a_training(self) -> None:
        columns = {name: values[:5] for name, values in healthy(0).items()}
        diagnosis = diagnose(run(columns))
        assert diagnosis.iterations == 5
        assert diagnosis.not_judged["plateau"] == "5 iterations, at least 20 are needed"
        assert {verdict.code for verdict in diagnosis.verdicts} == set()

    def test_nothing_at_all(self) -> None:
        diagnosis = diagnose(gather([]))
        assert (diagnosis.iterations, diagnosis.verdicts) == (0, ())
        assert set(diagnosis.not_judged) == set(CODES)

    def test_a_failure_that_left_no_trace_in_the_curves(self) -> None:
        """MLflow takes no values that are not finite."""
        curves = run(healthy(0))
        told = "diverged: Loss/value not finite at iteration 121"
        verdict = verdict_on(RunCurves(curves.curves, SETTINGS, None, told), "diverged")
        assert (verdict.seen, verdict.iterations) == (told, (120, 120))
        assert found(RunCurves(curves.curves, SETTINGS, None, "no sign of life for 120 s")) == set()


class TestTrend:
    def test_line(self) -> None:
        fit = trend(Curve(np.array([10, 20, 30, 40]), np.array([1.0, 2.0, 3.0, 4.0])))
        assert fit.change == pytest.approx(3.0)
        assert fit.error == pytest.approx(0.0, abs=1e-12)
        assert fit.rises

    def test_error_is_that_of_least_squares(self) -> None:
        rng = np.random.default_rng(0)
        steps = np.arange(30)
        changes, errors = [], []
        for _ in range(2000):
            fit = trend(Curve(steps, 0.1 * steps + rng.standard_normal(30)))
            changes.append(fit.change)
            errors.append(fit.error)
        assert np.mean(changes) == pytest.approx(2.9, abs=0.05)
        assert np.std(changes) == pytest.approx(np.mean(errors), rel=0.05)

    def test_noise_is_no_trend(self) -> None:
        rng = np.random.default_rng(0)
        fits = [trend(Curve(np.arange(40), rng.standard_normal(40))) for _ in range(500)]
        assert sum(fit.rises or fit.falls for fit in fits) < 10
        assert not trend(Curve(np.array([1, 2]), np.array([0.0, 9.0]))).rises


class TestFile:
    def write(self, folder: Path, name: str | None = None) -> None:
        columns = healthy(0)
        if name:
            AILMENTS[name][1](columns)
        log = wal.MetricsLog(folder / "metrics.jsonl")
        for step in range(LENGTH):
            metrics = {
                k: float(v[step]) for k, v in columns.items() if not k.startswith("Eval/") or (step + 1) % EVERY == 0
            }
            log.append(wal.Record(step + 1, 0.0, metrics))
        log.close()

    def test_what_is_written_can_be_read_back(self, tmp_path: Path) -> None:
        self.write(tmp_path, "diverged")
        attach(tmp_path)
        text = (tmp_path / DIAGNOSIS).read_text()
        assert text.startswith(
            "# What the curves of 120 iterations show\n\n- **diverged** warning, iterations 101 to 120:"
        )
        assert "- synchronous_timeouts: task.episode_length is not known" in text
        assert read(tmp_path / DIAGNOSIS)["diverged"].startswith(
            "warning, iterations 101 to 120: Loss/value not finite"
        )

    def test_of_a_folder_without_curves(self, tmp_path: Path) -> None:
        attach(tmp_path)
        assert read(tmp_path / DIAGNOSIS) == {}
        assert "Nothing to object to" in (tmp_path / DIAGNOSIS).read_text()

    def test_why_the_job_failed_is_taken_from_its_result(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        reason = "diverged: Loss/value not finite at iteration 121"
        (tmp_path / "result.json").write_text(json.dumps({"status": "failed", "reason": reason}))
        attach(tmp_path)
        assert read(tmp_path / DIAGNOSIS)["diverged"].startswith(f"warning, iteration 120: {reason}")

    def test_markdown_holds_every_verdict_with_its_advice(self) -> None:
        columns = healthy(0)
        AILMENTS["saturation"][1](columns)
        diagnosis = diagnose(run(columns))
        text = as_markdown(diagnosis)
        for verdict in diagnosis.verdicts:
            assert f"- **{verdict.code}** {verdict.level}, iterations" in text
            assert verdict.advice in text


def test_a_summary_counts_over_trainings() -> None:
    trainings = [
        {"timid": "warning, …", "plateau": "information, …"},
        {"timid": "warning, …", "diverged": "warning, …"},
        {"plateau": "warning, …"},
        {},
    ]
    assert summarise(trainings) == [
        "curves, to look into: timid in 2, diverged in 1, plateau in 1 of 4 trainings (diagnosis.md in each folder)",
    ]  # nor is the plateau of another training counted once more as harmless
    assert summarise([{"timid": "warning, …"}]) == ["curves, to look into: timid (diagnosis.md in each folder)"]
    assert summarise([{}, {}]) == []


ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1.0, 1e308, -1e38, 1e-308)
SETTINGS_GONE_WRONG = {
    "task.episode_length": (10.0, "abc", None, math.inf, 0, [1], True, 1e-308),
    "task.control_dt": (0.1, 0, None, math.nan, 1e-308),
    "algorithm.num_steps_per_env": (32, 0, None, -1, "32", 10**400),
    "algorithm.schedule": ("fixed", None),
}


def test_no_curves_are_too_odd_to_be_looked_at() -> None:
    """Few points and many, far apart, constant, not finite, of negative iterations; and whatever the config says."""
    draw, names = random.Random(0), list(healthy(0))
    for _ in range(300):
        length, first = draw.choice((1, 2, 20, 40)), draw.choice((0, 1, -100, 2**62))
        points = []
        for name in names:
            kept, values = draw.choice((0.0, 0.1, 1.0, 1.0)), draw.sample(ODD, draw.choice((1, 2, 5)))
            at = [first + i for i in range(length) if draw.random() < kept]
            points += [(name, step, draw.choice((draw.random(), draw.choice(values)))) for step in at]
        settings = {path: draw.choice(values) for path, values in SETTINGS_GONE_WRONG.items()}
        with warnings.catch_warnings(action="error"):
            diagnosis = diagnose(gather(points, settings))
        assert as_markdown(diagnosis)
        assert all(math.isfinite(verdict.figure) for verdict in diagnosis.verdicts)
