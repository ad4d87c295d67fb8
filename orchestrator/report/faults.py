"""What may be wrong with a training, or is good to know of it: one function each, over its curves.

Each states what it sees, with the figure, the iterations concerned and one piece of advice. Every threshold stands
beside the reason for it. "Healthy" there are the default trainings of this project: 120 iterations on cluttered rooms,
270 on open ones.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from orchestrator.job.schedule import LEARNING_RATE_MAX, LEARNING_RATE_MIN
from orchestrator.report.curves import Curve, Missing, RunCurves
from orchestrator.report.trend import trend

Level = Literal["warning", "information"]

SHORTEST = 20
"""Iterations. With fewer there are no thirds and fifths to speak of, and nothing is learned yet."""

REACHED = 0.5
"""Success rate from which a training counts as having found its task: healthy ones end above, failed ones near 0."""

SOLVED = 0.9
"""Success rate above which there is no room left: that it stands still there is no fault."""


@dataclass(frozen=True)
class Verdict:
    """One thing that the curves show."""

    code: str
    level: Level
    figure: float
    """What the verdict rests on, in the unit that ``seen`` gives."""
    iterations: tuple[int, int]
    """First and last one concerned."""
    seen: str
    advice: str

    def __str__(self) -> str:
        first, last = self.iterations
        when = f"iterations {first} to {last}" if last > first else f"iteration {first}"
        return f"{self.level}, {when}: {self.seen}. {self.advice}"


Check = Callable[[RunCurves], Iterator[Verdict]]
CHECKS: list[tuple[tuple[str, ...], int, Check]] = []
"""Codes, least number of iterations, and the function; see ``check``."""


def check(*codes: str, shortest: int = SHORTEST) -> Callable[[Check], Check]:
    """Register a function that yields verdicts of these codes, or raises Missing; it is called for trainings of at
    least ``shortest`` iterations."""

    def add(function: Check) -> Check:
        CHECKS.append((codes, shortest, function))
        return function

    return add


@check("diverged", shortest=0)
def _diverged(run: RunCurves) -> Iterator[Verdict]:
    advice = "Look at the curves just before it: a learning rate or a reward that is far too large is the usual cause"
    if run.broken is not None:
        step, names = run.broken
        seen = f"{', '.join(names[:3])} not finite, first at iteration {step}"
        yield Verdict("diverged", "warning", step, (step, run.last), seen, advice)
    elif run.failure is not None and run.failure.startswith("diverged"):
        yield Verdict("diverged", "warning", run.last, (run.last, run.last), run.failure, advice)
    else:
        ended = run.curve("Episode_Termination/diverged")
        if (ended.values > 0).any():
            first, last = ended.where(ended.values > 0)
            worst = float(ended.values.max())
            seen = (
                f"the state of some rooms was not finite, first at iteration {first}, in up to {worst:.1%} of episodes"
            )
            advice = "The physics became unstable: take a shorter physics_dt, or softer contacts"
            yield Verdict("diverged", "warning", first, (first, last), seen, advice)


UNTOUCHED = 1e-3
"""Mean |mean| and mean |std - 1| of the observation normaliser. Both are exactly 0 until it learns; healthy ones are at
0.3 or more after a single rollout."""


@check("blind_policy", shortest=1)
def _blind_policy(run: RunCurves) -> Iterator[Verdict]:
    if run.settings.get("policy.obs_normalization") is False:
        raise Missing("policy.obs_normalization is off")
    mean, spread = run.curve("Policy/obs_mean_abs"), run.curve("Policy/obs_std_shift")
    if max(mean.values[-1], spread.values[-1]) < UNTOUCHED:
        seen = f"the observation normaliser still has mean 0 and variance 1 (off by {mean.values[-1]:.2g})"
        advice = "Its update is never called: see that the algorithm calls update_normalization in every iteration"
        yield Verdict("blind_policy", "warning", float(mean.values[-1]), (run.first, run.last), seen, advice)


ON_BOUND = 0.2
"""Share of the iterations that end with the learning rate on a bound. Healthy: up to 0.08 on the floor, since the
desired KL shrinks at the end, and up to 0.06 on the ceiling, with large steps at first."""


@check("lr_at_floor", "lr_at_ceiling")
def _learning_rate(run: RunCurves) -> Iterator[Verdict]:
    rate = run.curve("Loss/learning_rate")
    if run.settings.get("algorithm.schedule") == "fixed":
        raise Missing("algorithm.schedule is fixed")
    if "algorithm.schedule" not in run.settings and np.ptp(rate.values) == 0:
        raise Missing("the learning rate never moves, so its schedule is fixed")
    for code, bound, on_bound, meaning, advice in (
        (
            "lr_at_floor",
            LEARNING_RATE_MIN,
            rate.values <= LEARNING_RATE_MIN * 1.001,
            "updates are too violent, even the least rate overshoots the desired KL",
            "Take fewer epochs, larger mini-batches or a larger desired_kl",
        ),
        (
            "lr_at_ceiling",
            LEARNING_RATE_MAX,
            rate.values >= LEARNING_RATE_MAX * 0.999,
            "updates are too timid, even the greatest rate does not reach the desired KL",
            "Take a smaller desired_kl, more epochs, or a reward with more to learn from",
        ),
    ):
        share = float(on_bound.mean())
        if share > ON_BOUND:
            seen = f"learning rate on its bound of {bound:g} in {share:.0%} of the iterations: {meaning}"
            yield Verdict(code, "warning", share, rate.where(on_bound), seen, advice)


OVERSHOOT, RUNAWAY = 0.25, 0.5
"""Share of the mini-batches with a KL beyond twice the desired one. The adaptive schedule brakes only after it has gone
too far, so healthy trainings show 0.15 to 0.24 and very small ones up to 0.36: above a quarter it is worth knowing, and
a warning when most mini-batches are beyond, or when no schedule is there to brake."""


@check("kl_overshoot")
def _kl_overshoot(run: RunCurves) -> Iterator[Verdict]:
    beyond = run.curve("PPO/kl_overshoot")
    share = float(beyond.values.mean())
    if share > OVERSHOOT:
        unbraked = run.settings.get("algorithm.schedule") == "fixed"
        level: Level = "warning" if unbraked or share > RUNAWAY else "information"
        seen = f"KL beyond twice the desired one in {share:.0%} of the mini-batches"
        advice = "Take a smaller learning rate (fixed schedule), fewer epochs or larger mini-batches"
        yield Verdict("kl_overshoot", level, share, beyond.where(beyond.values > OVERSHOOT), seen, advice)


KL_BEFORE_LEARNING = 1e-5
"""KL before the first gradient step of an update, where old and new policy are one network: healthy trainings show
exactly 0, and even rounding to ten bits, as a GPU may, makes no more than a few millionths."""


@check("first_epoch_kl", shortest=1)
def _first_epoch_kl(run: RunCurves) -> Iterator[Verdict]:
    first = run.curve("PPO/kl_first")
    moved = first.values > KL_BEFORE_LEARNING
    if moved.mean() > 0.1:  # one iteration may have its own reason, such as a resumption
        typical = float(np.median(first.values[moved]))
        seen = f"KL of {typical:.2g} before the first gradient step, in {moved.mean():.0%} of the iterations"
        advice = (
            "Old and new policy see differently normalised observations: update the normaliser after the epochs, not "
            "during the rollout"
        )
        yield Verdict("first_epoch_kl", "warning", typical, first.where(moved), seen, advice)


COLLAPSED = 0.05
"""Standard deviation of actions in [-1, 1]: below, exploration has ended. Healthy trainings end at 0.23 to 0.4."""


@check("std_collapse")
def _std_collapse(run: RunCurves) -> Iterator[Verdict]:
    std, success = run.curve("Policy/mean_std"), _success(run)
    best = np.maximum.accumulate(success.values)
    newest = np.searchsorted(success.steps, std.steps, side="right") - 1
    reached = (newest >= 0) & (best[np.maximum(newest, 0)] >= REACHED)
    early = (std.values < COLLAPSED) & ~reached
    if early.mean() > 0.1:  # not a policy that found its task a little later
        least = float(std.values[early].min())
        seen = (
            f"the actions' standard deviation is down to {least:.2g} before a success rate of {REACHED:g} was reached"
        )
        advice = "Nothing new is tried any more: take a larger init_std, a larger entropy_coef or smaller updates"
        yield Verdict("std_collapse", "warning", least, std.where(early), seen, advice)


EXPLODED = 2.0
"""End over start of the actions' standard deviation. Healthy ones shrink to about 0.6 of it."""


@check("std_explosion")
def _std_explosion(run: RunCurves) -> Iterator[Verdict]:
    std = run.curve("Policy/mean_std", SHORTEST)
    start, end = (
        float(np.median(run.curve("Policy/mean_std", 1, a, b).values))
        for a, b in ((run.first, run.part(0.1)), (run.part(0.9), run.last))
    )
    if start < _TINY:
        raise Missing(f"Policy/mean_std is {start:g} at first")
    if end > EXPLODED * start and trend(std.between(run.part(2 / 3))).rises:
        seen = f"the actions' standard deviation grew from {start:.2g} to {end:.2g} and still grows"
        advice = "Take a smaller entropy_coef"
        yield Verdict("std_explosion", "warning", end / start, (run.first, run.last), seen, advice)


_TINY = float(np.finfo(np.float32).tiny)
"""A standard deviation that small is none, and nothing can be a share of it."""

GROWN = 0.1
"""Growth of the standard deviation over the second half, as a share; healthy ones shrink there."""

STILL = 0.03
"""Change of a success rate that is none: two standard errors of a rate over a thousand rooms are 0.03 at most."""


@check("entropy_only")
def _entropy_only(run: RunCurves) -> Iterator[Verdict]:
    if run.settings.get("algorithm.entropy_coef") == 0:
        return  # there is no bonus that could rule
    half = run.part(0.5)
    std, success = run.curve("Policy/mean_std", 1, half), _success(run, since=half)
    growth, mean = trend(std), float(std.values.mean())
    if mean < _TINY:
        raise Missing(f"Policy/mean_std is {mean:g} on average")
    share = growth.change / mean
    if share > GROWN and growth.rises and trend(success).change < STILL and _standing(run) < SOLVED:
        seen = f"the actions' standard deviation grows by {share:.0%} while success stands at {_standing(run):.2f}"
        advice = "The entropy bonus rules: take a smaller entropy_coef, or a reward that is worth more"
        yield Verdict("entropy_only", "warning", share, (int(half), run.last), seen, advice)


CLIPPED = 0.3
"""Share of the actions beyond [-1, 1] on an axis. A robot that is paid to hurry drives at its limit: healthy trainings
show up to 0.85 on the forward axis. So it is a warning only where the task is not reached, or where ..."""

NOISE_ALONE = 1.0
"""... the noise explains it: 32 % of a normal distribution lie beyond one standard deviation."""


@check("saturation")
def _saturation(run: RunCurves) -> Iterator[Verdict]:
    prefix = "Policy/action_saturation_"
    names = [name for name in run.curves if name.startswith(prefix)]
    if not names:
        raise Missing(f"{prefix}... was not logged")
    late = run.part(2 / 3)
    shares = {name.removeprefix(prefix): run.curve(name).between(late) for name in names}
    glued = {axis: float(c.values.mean()) for axis, c in shares.items() if len(c) and c.values.mean() > CLIPPED}
    if not glued:
        return
    worst = max(glued.values())
    axes = ", ".join(f"{share:.0%} on {axis}" for axis, share in glued.items())
    try:
        noisy = float(run.curve("Policy/mean_std", 1, late).values.mean()) >= NOISE_ALONE
    except Missing:
        noisy = False
    try:
        fine = _standing(run) >= REACHED and not noisy
    except Missing:
        fine = False
    if fine:
        level: Level = "information"
        advice = (
            "The policy drives at its limits, and gets there: nothing to mend unless the actuators should be spared"
        )
    elif noisy:
        level, advice = "warning", "The noise alone clips so much: take a smaller init_std or entropy_coef"
    else:
        level, advice = "warning", "Check that the action range fits the actuators, or punish large actions"
    yield Verdict("saturation", level, worst, (int(late), run.last), f"actions clipped: {axes}", advice)


@check("reward_hacking")
def _reward_hacking(run: RunCurves) -> Iterator[Verdict]:
    # Over all of the training, and over its second half, where success may fall again.
    begin, half = _settled(run), run.part(0.5)
    for since, most in ((begin, STILL), (half, -STILL)):
        earned = run.curve("Train/mean_reward", 3).between(since)
        success = run.curve("Eval/success_rate", 3).between(since)
        if len(earned) < 3 or len(success) < 3:
            continue
        income, goals = trend(earned), trend(success)
        # Held against its own noise as well: a return that wobbles about has not risen.
        rises = income.rises and income.change > 1.5 * float(earned.values.std())
        if rises and goals.change < most and _standing(run) < SOLVED:
            paid = _grown_most(run, since)
            seen = (
                f"the return rises by {income.change:.3g} while the held-out success rate changes by "
                f"{goals.change:+.2f}, to {success.values[-1]:.2f}{paid}"
            )
            advice = (
                "The reward pays for something else than the goal: look at the terms that grow, and weigh them anew"
            )
            yield Verdict("reward_hacking", "warning", goals.change, (int(since), run.last), seen, advice)
            return


SHIFTED = 0.1
"""Change of the shares of time-outs and of collisions, in opposite directions. In healthy trainings time-outs fall."""


@check("timid")
def _timid(run: RunCurves) -> Iterator[Verdict]:
    begin = _settled(run)
    late, crashed = (
        trend(run.curve(f"Episode_Termination/{cause}").between(begin)) for cause in ("timeout", "collision")
    )
    goals = trend(_success(run, since=begin))
    if (
        (late.rises and late.change > SHIFTED)
        and (crashed.falls and crashed.change < -SHIFTED)
        and goals.change < 2 * STILL
        and _standing(run) < REACHED
    ):
        seen = (
            f"time-outs grow by {late.change:.2f} of the episodes while collisions fall by {-crashed.change:.2f} and "
            f"success stands at {_standing(run):.2f}"
        )
        advice = "Standing still is the better bargain: punish collisions less, or time-outs more"
        yield Verdict("timid", "warning", late.change, (int(begin), run.last), seen, advice)


UNEXPLAINED = 0.25
"""Share of the iterations after the first fifth with an explained variance below 0. Healthy: at most 0.01."""


@check("value_failure")
def _value_failure(run: RunCurves) -> Iterator[Verdict]:
    late = run.curve("PPO/explained_variance", 1, run.part(0.2))
    worse = late.values < 0
    share = float(worse.mean())
    if share > UNEXPLAINED:
        typical = float(np.median(late.values))
        seen = (
            f"explained variance below 0 in {share:.0%} of the iterations after the first fifth, median {typical:.2f}"
        )
        advice = "The critic is worse than a constant: see value_loss_coef, the learning rate, and the reward's scale"
        yield Verdict("value_failure", "warning", share, late.where(worse), seen, advice)


BURST, FEWEST = 0.45, 16
"""Share of the time-outs of the first episode length that come in one iteration, and how many there must be to tell.
Ages that were spread give 0.22 to 0.28 with 64 rooms and episodes of six iterations, equal ones 0.56 to 0.72."""
MANY = 1.5
"""Of what rooms of even ages can bring in an iteration: one time-out each in an episode's length. Where a policy learns
fast, few of its first episodes run out of time, and most of these in the first iteration that counts: 0.46 to 0.59 as
well, but less than half of what even ages could bring."""


@check("synchronous_timeouts", shortest=1)
def _synchronous_timeouts(run: RunCurves) -> Iterator[Verdict]:
    period = _iterations_per_episode(run)
    if period < 3:
        raise Missing("an episode is hardly longer than a rollout")
    # The first episodes that began at age 0 and ran out of time: from then on for one episode's length.
    window = (math.ceil(period), math.ceil(period) + math.floor(period) - 1)
    share, episodes = (run.curve(name) for name in ("Episode_Termination/timeout", "Train/episodes"))
    if run.first > window[0] or run.last < window[1]:
        raise Missing("the first episodes are not among these iterations")
    share = share.between(*window)
    ended = dict(zip(episodes.steps.tolist(), episodes.values.tolist(), strict=True))
    counts = share.values * [ended.get(step, 0.0) for step in share.steps.tolist()]
    if counts.sum() < FEWEST:
        raise Missing(f"{counts.sum():.0f} time-outs in the first {window[1]} iterations, too few")
    burst = float(counts.max() / counts.sum())
    if burst > max(BURST, 2 / math.floor(period)) and counts.max() > MANY * run.positive("num_envs") / period:
        at = int(share.steps[counts.argmax()])
        seen = f"{burst:.0%} of the time-outs of iterations {window[0]} to {window[1]} come in iteration {at}"
        advice = "All rooms began at the same age: spread the first episodes' ages over the time limit"
        yield Verdict("synchronous_timeouts", "warning", burst, (at, at), seen, advice)


RISING = 0.05
"""Change of the success rate (or of the return, as a share of its range) over the last third that is worth a longer
training; below ``STILL`` it is flat, and between the two nothing is said."""


@check("plateau", "still_rising")
def _last_third(run: RunCurves) -> Iterator[Verdict]:
    since = run.part(2 / 3)
    try:
        curve, what, scale = _success(run, since=since), "success rate", 1.0
    except Missing:
        curve, what = run.curve("Train/mean_reward"), "return"
        scale = float(np.ptp(curve.values)) or 1.0
        curve = curve.between(since)
    gone = trend(Curve(curve.steps, curve.values / scale))
    unit = "" if what == "success rate" else " of its range"
    if abs(gone.change) < STILL and gone.error < RISING:
        level: Level = "information"
        seen = f"{what} changed by {gone.change:+.3f}{unit} in the last third, at {curve.values[-1]:.3g} in the end"
        advice = "A shorter training would have done"
        if what == "success rate" and _standing(run) < REACHED:
            level = "warning"
            advice = (
                "More iterations won't help: see whether the observation tells where the goal is, and what is paid for"
            )
        yield Verdict("plateau", level, gone.change, (int(since), run.last), seen, advice)
    elif gone.change > RISING and gone.rises:
        seen = f"{what} still rose by {gone.change:.3f}{unit} in the last third, to {curve.values[-1]:.3g}"
        yield Verdict("still_rising", "information", gone.change, (int(since), run.last), seen, "Train longer")


MOST_TIME = 0.75
"""Share of the time from which one phase is the one to speed up. On a CPU healthy trainings spend 0.54 to 0.72 of it on
rollouts: so it should be there, and is not worth saying."""


@check("slow_env", "slow_learner")
def _slow(run: RunCurves) -> Iterator[Verdict]:
    collection, learning = (float(run.curve(f"Perf/{phase}_time").values.sum()) for phase in ("collection", "learning"))
    if min(collection, learning) < 0 or collection + learning == 0:
        raise Missing(f"Perf/collection_time and Perf/learning_time add up to {collection:g} and {learning:g} s")
    share = collection / (collection + learning)
    each = f"{collection:.1f} s of rollouts, {learning:.1f} s of learning"
    span = (run.first, run.last)
    if share > MOST_TIME:
        advice = "To be faster, look at the environment first: more rooms at a time, or more threads"
        yield Verdict("slow_env", "information", share, span, f"rollouts take {share:.0%} of the time ({each})", advice)
    elif 1 - share > MOST_TIME:
        seen = f"learning takes {1 - share:.0%} of the time ({each})"
        advice = "To be faster, look at the learner first: fewer epochs, a smaller network, or a GPU"
        yield Verdict("slow_learner", "information", 1 - share, span, seen, advice)


# -- what several of them need ----------------------------------------------------------------------------------------


def _success(run: RunCurves, since: float = -math.inf) -> Curve:
    """Success on the frozen rooms since then; where evaluations are too few, that of the training's own episodes.

    It has at least three points; raises Missing where there are fewer.
    """
    held_out = run.curves.get("Eval/success_rate")
    if held_out is not None and len(held_out.between(since)) >= 3:
        return held_out.between(since)
    return run.curve("Episode_Termination/success", 3, since)


def _standing(run: RunCurves) -> float:
    """Success rate at the end: the mean of the last three evaluations, or of the last tenth of the training."""
    curve = run.curves.get("Eval/success_rate")
    if curve is not None:
        return float(curve.values[-3:].mean())
    return float(run.curve("Episode_Termination/success", 1, run.part(0.9)).values.mean())


def _iterations_per_episode(run: RunCurves) -> float:
    """Raises Missing where the config doesn't say it."""
    paths = ("task.episode_length", "task.control_dt", "algorithm.num_steps_per_env")
    length, step, steps = (run.positive(path) for path in paths)
    iterations = length / step / steps
    if not math.isfinite(iterations):
        raise Missing(f"{paths[0]} is {length:g}, {paths[1]} {step:g}")
    return iterations


def _settled(run: RunCurves) -> float:
    """The iteration from which episodes that end are a fair sample: before, none can have run out of time."""
    try:
        return max(run.first, math.ceil(_iterations_per_episode(run)))
    except Missing:
        return run.part(0.1)


def _grown_most(run: RunCurves, since: float) -> str:
    prefix = "Episode_Reward/"
    grown = {
        name.removeprefix(prefix): trend(curve.between(since)).change
        for name, curve in run.curves.items()
        if name.startswith(prefix)
    }
    if not grown:
        return ""
    most = max(grown, key=lambda name: grown[name])
    return f"; the term '{most}' grew most, by {grown[most]:.3g}"
