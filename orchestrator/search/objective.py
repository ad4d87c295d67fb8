"""What a trial is judged by: metrics that don't depend on what is searched."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.config import Config, task_of
from orchestrator.errors import UserError, nearest
from orchestrator.record.wal import Record

SUCCESS = "Eval/success_rate"
"""Every task has it: what a single run is judged by, and what the table shows of every trial."""


@dataclass(frozen=True)
class Objective:
    """A metric that should be large, or small."""

    metric: str
    direction: str
    worst: float | None
    """Told where the metric is undefined, and the corner of the hypervolume; None: an undefined one fails the trial."""

    @property
    def sign(self) -> float:
        """What to multiply a value by for more to be better."""
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def is_rate(self) -> bool:
        """Whether it is a share of episodes, 0 to 1."""
        return self.metric.endswith("_rate")

    def better(self, value: float, than: float | None) -> bool:
        """Whether ``value`` is the better one. Nothing beats nothing, and NaN beats nothing."""
        return not math.isnan(value) and (than is None or self.sign * value > self.sign * than)


@dataclass(frozen=True)
class Constraint:
    """Bounds that a metric must keep to."""

    metric: str
    low: float
    high: float

    def violation(self, value: float) -> float:
        """By how much a bound is broken; 0 or less where none is. What is undefined breaks it without measure."""
        return math.inf if math.isnan(value) else max(value - self.high, self.low - value)

    def __str__(self) -> str:
        at_least = f"{self.metric} >= {self.low:g}" if math.isfinite(self.low) else ""
        at_most = f"{self.metric} <= {self.high:g}" if math.isfinite(self.high) else ""
        return " and ".join(part for part in (at_least, at_most) if part)


@dataclass(frozen=True)
class Score:
    """What a training, or several together, came to."""

    values: tuple[float, ...]
    """One for each objective."""
    bounded: tuple[float, ...] = ()
    """The metric of each constraint; nan where it is undefined."""


class Judge:
    """Gives scores by the objectives and constraints of a config."""

    def __init__(self, config: Config) -> None:
        sweep = config.sweep
        self.objectives: tuple[Objective, ...] = (Objective(SUCCESS, "maximize", None),)
        self.constraints: tuple[Constraint, ...] = ()
        self.window = 3
        """A score is the mean over so many last measurements: a policy wanders."""
        if sweep is not None:
            several = tuple(Objective(name, o.direction, o.worst) for name, o in sweep.objectives.items())
            self.objectives = several or (Objective(sweep.objective or SUCCESS, sweep.direction, sweep.worst),)
            self.constraints = tuple(
                Constraint(name, -math.inf if c.min is None else c.min, math.inf if c.max is None else c.max)
                for name, c in sweep.constraints.items()
            )
            self.window = sweep.objective_window

    @property
    def one(self) -> Objective | None:
        """The only objective; None where there are several."""
        return self.objectives[0] if len(self.objectives) == 1 else None

    def score(self, records: Iterable[Record]) -> Score | None:
        """Of one training's log. None: an objective without a ``worst`` is undefined; see ``why_no_score``."""
        records = list(records)
        values = []
        for objective in self.objectives:
            value = self.measure(records, objective.metric, objective.worst)
            if value is None:
                return None
            values.append(value)
        bounded = (self.measure(records, c.metric, math.nan) for c in self.constraints)
        return Score(tuple(values), tuple(math.nan if value is None else value for value in bounded))

    def measure(self, records: Iterable[Record], metric: str, undefined: float | None = None) -> float | None:
        """The mean of a metric's last values. ``undefined`` stands where an evaluation lacks it.

        None where nothing stands there and one of the last evaluations lacks it: what it was before is not what the
        policy is now.
        """
        values = [r.metrics.get(metric, math.nan) for r in records if _measures(r, metric, undefined is not None)]
        if undefined is not None:
            values = [undefined if math.isnan(value) else value for value in values]
        mean = summarise(values, self.window)
        return None if mean is None or (undefined is None and math.isnan(mean)) else mean

    def judges_by(self, record: Record) -> bool:
        """Whether a record is one by which a trial stands in the only objective."""
        return self.one is not None and _measures(record, self.one.metric, self.one.worst is not None)

    def why_no_score(self, records: Sequence[Record]) -> str:
        """Where ``score`` gave none."""
        lacking = [o.metric for o in self.objectives if self.measure(records, o.metric, o.worst) is None]
        measured = [r for r in records if any(_measures(r, metric, False) for metric in lacking)]
        named, be = " and ".join(lacking), "is" if len(lacking) == 1 else "are"
        if not measured:
            return f"{named} {'was' if len(lacking) == 1 else 'were'} never measured"
        failed = any(r.metrics.get(SUCCESS) == 0.0 for r in measured[-self.window :])
        why = ": nothing succeeded" if failed else ""
        hint = "; sweep.worst says what that counts as" if self.one is not None else ""
        return f"{named} {be} undefined in the last evaluations{why}{hint}"

    def broken(self, score: Score) -> list[str]:
        """The constraints that a score breaks, with what it came to, and by how much that is too much."""
        pairs = zip(self.constraints, score.bounded, strict=False)
        broken = [(constraint, value, constraint.violation(value)) for constraint, value in pairs]
        return [
            f"{constraint} ({'undefined' if math.isnan(value) else f'{value:.3f}, by {excess:.3f}'})"
            for constraint, value, excess in broken
            if excess > 0
        ]


def _measures(record: Record, metric: str, lacking_counts: bool) -> bool:
    """Whether a record says what a metric is, or that it has no value. An evaluation says so of each of its metrics; in
    training one is left out by an iteration in which nothing happened that it could be measured on."""
    kind = metric.partition("/")[0]
    if kind.startswith("Eval") or lacking_counts:
        return any(name.startswith(f"{kind}/") for name in record.metrics)
    return not math.isnan(record.metrics.get(metric, math.nan))


def mean_score(scores: Sequence[Score]) -> tuple[Score, tuple[float, ...]]:
    """Of several trainings: the mean, and each objective's standard deviation between them (0 of one)."""
    values = [[score.values[i] for score in scores] for i in range(len(scores[0].values))]
    bounded = [[score.bounded[i] for score in scores] for i in range(len(scores[0].bounded))]
    mean = Score(tuple(math.fsum(v) / len(v) for v in values), tuple(math.fsum(b) / len(b) for b in bounded))
    return mean, tuple(_deviation(v) for v in values)


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def check(config: Config, moves_rewards: bool) -> None:
    """Raise UserError, with the reason, for objectives and constraints that can't judge this sweep's trials."""
    sweep = config.sweep
    assert sweep is not None
    if sweep.objective is not None:
        key = f"sweep.objective={sweep.objective}"
        _check_metric(config, key, sweep.objective, moves_rewards)
        _check_direction(config, sweep.objective, sweep.direction, key, "sweep.direction")
    for name, objective in sweep.objectives.items():
        key = f"sweep.objectives.{name}"
        _check_metric(config, key, name, moves_rewards)
        _check_direction(config, name, objective.direction, key, f"{key}.direction")
    for name in sweep.constraints:
        _check_metric(config, f"sweep.constraints.{name}", name, moves_rewards)


def _check_metric(config: Config, key: str, metric: str, moves_rewards: bool) -> None:
    known = known_metrics(config)
    if moves_rewards and "/" in metric and not metric.startswith("Eval"):
        raise UserError(
            f"{key}: measured in training, on the very rewards that this sweep changes, so a trial would win by being "
            "paid more; take a metric of the frozen evaluation, such as Eval/success_rate"
        )
    if metric not in known:
        raise UserError(f"{key}: no such metric{nearest(metric, known)}")


def _check_direction(config: Config, metric: str, direction: str, key: str, where: str) -> None:
    """A search for what is worst is a slip, not a wish."""
    kind, _, name = metric.partition("/")
    better = task_of(config).better.get(name) if kind.startswith("Eval") else None
    expected = None if better is None else {"more": "maximize", "less": "minimize"}[better]
    if expected is not None and direction != expected:
        raise UserError(f"{key}: {better} is better; expected {where}={expected}, not {direction}")


def known_metrics(config: Config) -> list[str]:
    """Every metric that could be an objective or a requirement under this config: those of the frozen evaluations, and
    those of training, which can be objectives only where rewards are left alone."""
    task = task_of(config)
    return [
        *(f"Eval/{name}" for name in task.metrics),
        *(f"Eval_{further}/{name}" for further in config.evaluation.further_sets for name in task.metrics),
        "Train/mean_reward",
        "Train/mean_episode_length",
        *(f"Episode_Termination/{cause}" for cause in task.causes),
        "Perf/total_fps",
    ]


def check_require(config: Config) -> None:
    """Raise UserError for a requirement on a metric that there isn't."""
    known = known_metrics(config)
    for name in config.require:
        if name not in known:
            raise UserError(f"require.{name}: no such metric{nearest(name, known)}")


def summarise(values: Sequence[float], window: int) -> float | None:
    """The mean of the last ``window`` values (of all, where there are fewer): a policy wanders. None without values."""
    last = values[-window:]
    return sum(last) / len(last) if last else None
