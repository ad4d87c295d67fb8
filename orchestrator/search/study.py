"""The Optuna study behind a sweep: who is asked for the next point, and told how it went.

The storage is the sampler's whole memory. For each proposal a fresh sampler is built, seeded by the sweep's seed and
the trial's number, so that a proposal depends on history, seed and number alone: a driver that was killed and started
again neither repeats draws nor needs anything pickled.

A trial that was asked for is completed by asking again under the same number; that is how both a kill between the
steps of a proposal and a fixed point (the baseline, an enqueued one) are handled.
"""

import math
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.pruners import WilcoxonPruner
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from orchestrator.config import SweepConfig
from orchestrator.errors import UserError
from orchestrator.search.objective import Judge, Score
from orchestrator.search.samplers import build_pruner, build_sampler
from orchestrator.search.space import Space

VALUES, REASON, BOUNDED, SPREAD = "values", "reason", "constraints", "spread"
"""User attributes of a trial: {config path: value} as set on the config, why it failed or was pruned, {metric: value}
of what is constrained, and {metric: standard deviation between seeds} of its objectives."""

DIVERGED = "diverged"
"""A failure whose reason starts so was the point's own fault."""


@dataclass(frozen=True)
class StudyTrial:
    """A trial as the study has it."""

    number: int
    state: str
    """``running``, ``finished``, ``pruned`` or ``failed``."""
    score: Score | None
    """Of a pruned one, where all its seeds together stood; None where not all of them were trained."""
    spread: tuple[float, ...]
    values: Mapping[str, Any]
    """Config path -> value; empty while the proposal is incomplete."""
    reason: str | None


_STATES = {
    TrialState.RUNNING: "running",
    TrialState.WAITING: "running",
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class Study:
    """Asks and tells; the only writer of ``study.db``."""

    def __init__(
        self,
        database: Path,
        sweep: SweepConfig,
        space: Space,
        judge: Judge,
        seed: int,
        points: Sequence[Mapping[str, Any]],
    ) -> None:
        """Open the study, or create it. ``points[i]`` is what trial i must be: the baseline first."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._sweep, self._space, self._judge, self._seed, self._points = sweep, space, judge, seed, points
        storage = optuna.storages.get_storage(_url(database))  # with one cache for all that follows
        optuna.create_study(
            study_name=sweep.name,
            storage=storage,
            directions=[optuna.study.StudyDirection[o.direction.upper()] for o in judge.objectives],
            load_if_exists=True,
        )
        pruner = build_pruner(sweep)
        self._study = optuna.Study(sweep.name, storage, sampler=RandomSampler(), pruner=pruner)
        self._seen = _AsSamplersSeeIt(sweep.name, storage, sampler=RandomSampler(), pruner=pruner)
        self.reports_runs = isinstance(pruner, WilcoxonPruner)
        """It compares the trainings of two trials seed by seed; every other pruner compares how trials stand."""
        self._live: dict[int, optuna.Trial] = {}
        self._reported: dict[int, set[int]] = {}

    def trials(self) -> list[StudyTrial]:
        """All trials, by number."""
        return [self._as_told(trial) for trial in self._study.get_trials(deepcopy=False)]

    def _as_told(self, trial: FrozenTrial) -> StudyTrial:
        attributes = trial.user_attrs
        values = trial.values or ()
        bounded, spread = attributes.get(BOUNDED, {}), attributes.get(SPREAD, {})
        return StudyTrial(
            number=trial.number,
            state=_STATES[trial.state],
            score=Score(tuple(values), tuple(bounded.get(c.metric, math.nan) for c in self._judge.constraints))
            if values
            else None,
            spread=tuple(spread[o.metric] for o in self._judge.objectives if o.metric in spread),
            values=attributes.get(VALUES, {}),
            reason=attributes.get(REASON),
        )

    def front(self) -> list[int]:
        """Numbers of the trials on the Pareto front: none is better in one objective and as good in the others, among
        those that break no constraint."""
        return sorted(trial.number for trial in self._study.best_trials)

    def ask(self) -> int:
        """The number of a new trial, which ``complete`` draws: its number seeds the sampler."""
        return self._study.ask().number

    def complete(self, number: int) -> dict[str, Any]:
        """What a running trial is to be, {config path: value}: drawn now, unless it was before a kill.

        Raises UserError where the conditional part of the space does what it may not; the trial can be told then."""
        frozen = self._study.get_trials(deepcopy=False)[number]
        self._reported[number] = set(frozen.intermediate_values)
        self._live[number] = optuna.trial.Trial(self._study, frozen._trial_id)
        if VALUES in frozen.user_attrs:
            return dict(frozen.user_attrs[VALUES])
        point = self._points[number] if number < len(self._points) else {}
        sampler = build_sampler(self._sweep, self._seed, number)
        self._seen._thread_local.cached_all_trials = None
        self._seen.sampler = _fixed(self._space.encode(point), sampler) if point else sampler
        drawn = self._space.suggest(optuna.trial.Trial(self._seen, frozen._trial_id), whole=number > 0)
        values = drawn | dict(point)
        self._live[number] = optuna.trial.Trial(self._study, frozen._trial_id)
        self._live[number].set_user_attr(VALUES, values)
        return values

    def report(self, number: int, step: int, value: float) -> bool:
        """Note an intermediate value; whether the trial should be stopped for it. The baseline is never stopped."""
        if step in self._reported[number]:
            return False
        self._reported[number].add(step)
        trial = self._live[number]
        trial.report(value, step)
        return number > 0 and trial.should_prune()

    def tell(
        self,
        number: int,
        state: str,
        score: Score | None = None,
        reason: str | None = None,
        spread: Sequence[float] = (),
    ) -> None:
        """End a trial: ``finished`` with its score, ``pruned`` or ``failed`` with the reason. Telling twice is once."""
        trial = self._live.pop(number, None) or self._study_trial(number)
        if not self._ended(number):
            self._note(trial, score, reason, spread)
            if state == "pruned" and self.reports_runs:
                # Not by Optuna's `tell`, which would take what the last seed came to for the value of the trial.
                self._study._storage.set_trial_state_values(trial._trial_id, TrialState.PRUNED)
                return
        optuna_state = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}[state]
        values = list(score.values) if state == "finished" and score is not None else None
        self._study.tell(number, values, state=optuna_state, skip_if_finished=True)

    def _note(self, trial: optuna.Trial, score: Score | None, reason: str | None, spread: Sequence[float]) -> None:
        if reason is not None:
            trial.set_user_attr(REASON, reason)
        if spread:
            pairs = zip(self._judge.objectives, spread, strict=True)
            trial.set_user_attr(SPREAD, {objective.metric: value for objective, value in pairs})
        if score is not None and score.bounded:
            constraints = list(zip(self._judge.constraints, score.bounded, strict=True))
            trial.set_user_attr(BOUNDED, {c.metric: value for c, value in constraints if not math.isnan(value)})
            held = trial.constraints  # by a driver that was killed before it told
            for constraint, value in constraints:
                if constraint.metric not in held:
                    trial.set_constraint(constraint.metric, constraint.violation(value))

    def _ended(self, number: int) -> bool:
        return self._study.get_trials(deepcopy=False)[number].state.is_finished()

    def _study_trial(self, number: int) -> optuna.Trial:
        return optuna.trial.Trial(self._study, self._study.get_trials(deepcopy=False)[number]._trial_id)


class _AsSamplersSeeIt(optuna.Study):
    """The study in which a diverged trial is as bad as the worst finished one.

    Samplers skip failed trials, and would propose the region that diverges again and again. In the storage such a
    trial stays what it is, failed.
    """

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        trials = super()._get_trials(deepcopy=deepcopy, states=None, use_cache=use_cache)
        finished = [t.values for t in trials if t.state == TrialState.COMPLETE]
        if finished:
            maximize = optuna.study.StudyDirection.MAXIMIZE
            by_objective = zip(self.directions, zip(*finished, strict=True), strict=True)
            worst = [min(values) if direction == maximize else max(values) for direction, values in by_objective]
            trials = [_as_worst(t, worst) if _diverged(t) else t for t in trials]
        return [t for t in trials if states is None or t.state in states]


def _diverged(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and str(trial.user_attrs.get(REASON, "")).startswith(DIVERGED)


def _as_worst(trial: FrozenTrial, worst: Sequence[float]) -> FrozenTrial:
    copy = optuna.trial.create_trial(
        state=TrialState.COMPLETE, values=worst, params=trial.params, distributions=trial.distributions,
        user_attrs=trial.user_attrs, system_attrs=trial.system_attrs,
    )  # fmt: skip
    copy.number, copy._trial_id = trial.number, trial._trial_id
    return copy


def best_points(database: Path, name: str, space: Space, today: Mapping[str, Any], top: int) -> list[dict[str, Any]]:
    """The best points of an earlier study, best first, in this space: with ``today``'s value where that study has none,
    or one that lies outside.

    Raises UserError where no point has a value that this space could have drawn.
    """
    try:
        study = optuna.load_study(study_name=name, storage=optuna.storages.RDBStorage(_url(database)))
    except Exception as error:
        error.add_note(str(database))
        raise
    if len(study.directions) > 1:
        raise UserError(f"sweep.warm_start={name}: has several objectives, so its best points can't be told")
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    finished = [t for t in finished if all(violation <= 0 for violation in t.constraints.values())]
    if not finished:
        raise UserError(f"sweep.warm_start={name}: none of its {len(study.get_trials(deepcopy=False))} trials is good")
    sign = -1 if study.direction == optuna.study.StudyDirection.MAXIMIZE else 1
    points: list[dict[str, Any]] = []
    for trial in sorted(finished, key=lambda t: sign * t.values[0]):
        values = trial.user_attrs.get(VALUES, {})
        common = {d.path: values[d.path] for d in space.dimensions if d.path in values and d.contains(values[d.path])}
        point = {**today, **common}
        if common and point not in points:
            points.append(point)
    if not points:
        searched = sorted({path for t in finished for path in t.user_attrs.get(VALUES, {})})
        raise UserError(
            f"sweep.warm_start={name}: 0 of its {len(finished)} points fit this space: none has a value for "
            f"{', '.join(d.path for d in space.dimensions)} that could be drawn here; it searched {', '.join(searched)}"
        )
    return points[:top]


def _url(database: Path) -> str:
    """Of an SQLite file, whatever characters its path has."""
    return sqlalchemy.URL.create("sqlite", database=str(database)).render_as_string()


def _fixed(drawn: dict[str, Any], sampler: BaseSampler) -> BaseSampler:
    """A sampler that draws what is given, and the rest as ``sampler`` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return PartialFixedSampler(drawn, sampler)
