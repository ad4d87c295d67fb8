"""What is going to be run, checked as a whole before anything starts."""

import math
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config import PROJECT, Config, SweepConfig, world_of
from orchestrator.errors import UserError, nearest, shown
from orchestrator.job.spec import RESULT, read
from orchestrator.launch.base import Launcher
from orchestrator.launch.loading import load
from orchestrator.record.redact import redact
from orchestrator.record.store import check_uri
from orchestrator.search import objective, samplers
from orchestrator.search.base import DATABASE, Search, read_result
from orchestrator.search.single import SingleRun
from orchestrator.search.space import Space, build
from orchestrator.search.sweep import Sweep


@dataclass(frozen=True)
class Plan:
    """A config that can be run."""

    config: Config
    launcher: type[Launcher]
    space: Space | None
    """None: a single run."""
    search: Search
    hindrance: str | None = None
    """Why the search can't go on in its folder: what ends everything but a dry run."""


def make(config: Config) -> Plan:
    """Check everything that can be checked without starting anything. Raises UserError; nothing on disk changes."""
    if config.tracking.uri is not None:
        check_uri(config.tracking.uri)
    objective.check_require(config)
    output = PROJECT / config.output_dir
    space: Space | None = None
    search: SingleRun | Sweep
    if config.sweep is None:
        search = SingleRun(config, output / config.experiment_name)
    else:
        space = _check_sweep(config, output)
        search = Sweep(config, space, output / config.sweep.name)
    hindrance = None
    try:
        search.check()
    except UserError as error:
        if not config.dry_run:
            raise
        hindrance = str(error)
    return Plan(config, load(config.launcher), space, search, hindrance)


def _check_sweep(config: Config, output: Path) -> Space:
    sweep = config.sweep
    assert sweep is not None
    space = build(config)
    samplers.check(sweep, space)
    objective.check(config, space.moves_rewards)
    if sweep.warm_start is not None and not (output / sweep.warm_start / DATABASE).exists():
        known = [path.parent.name for path in output.glob(f"*/{DATABASE}")]
        raise UserError(
            f"sweep.warm_start={sweep.warm_start}: no such study in {output}{nearest(sweep.warm_start, known)}"
        )
    return space


def describe(plan: Plan, launcher: Launcher) -> list[str]:
    """What ``dry_run`` prints: what would be run, where, and for how long."""
    config, folder = plan.config, plan.search.folder
    trials = "1 training" if plan.space is None else f"{plan.search.total} trials"
    if config.sweep is not None and config.sweep.seeds_per_trial > 1:
        trials += f" ({config.sweep.seeds_per_trial} seeds each)"
    lines = [
        f"{trials} of {config.algorithm.iterations} iterations, {config.num_envs} rooms ({world_of(config).name}), "
        f"evaluated every {config.evaluation.every} on {config.evaluation.num_rooms} frozen rooms "
        f"({config.evaluation.set})",
        f"on {config.device}, {launcher.where}",
        f"into {folder}; MLflow: {redact(config.tracking.uri or 'off')}",
    ]
    if plan.space is not None and config.sweep is not None:
        today = plan.space.today(config)
        judge = objective.Judge(config)
        lines.append(f"to {' and '.join(f'{o.direction} {o.metric}' for o in judge.objectives)} over")
        width = max((len(d.path) for d in plan.space.dimensions), default=0)
        lines += [f"  {d.path:<{width}}  {d.text}  (today {today[d.path]})" for d in plan.space.dimensions]
        if config.sweep.space:
            lines.append(f"  and what {config.sweep.space} adds")
        if isinstance(plan.search, Sweep):
            lines += _known_good(plan.search, config.sweep)
        if judge.constraints:
            lines.append(f"keeping {' and '.join(str(constraint) for constraint in judge.constraints)}")
        if config.confirm.top_k:
            lines.append(f"then the best {config.confirm.top_k} and the baseline on {config.confirm.seeds} fresh seeds")
    lines += [_how_long(plan, launcher), *outside(plan)]
    if plan.hindrance is not None:
        lines.append(f"without dry_run this would be refused: {plan.hindrance}")
    return lines


def outside(plan: Plan) -> list[str]:
    """A line for each value of today's that the search can't come to, on what that means, and how to keep it."""
    if plan.space is None:
        return []
    today = plan.space.today(plan.config)
    return [
        f"{d.path} is searched over {d.text}: today's {shown(today[d.path])} is the baseline's alone; to keep it for "
        f"all: '+sweep.params={{{d.path}: null}}'"
        for d in plan.space.dimensions
        if not d.contains(today[d.path])
    ]


def _known_good(search: Sweep, sweep: SweepConfig) -> list[str]:
    """How many trials are no draws, and how many that were asked for don't come to be any."""
    enqueued, points = len(sweep.enqueue), len(search.points()) - 1
    if points == 0:
        return []
    told = [f"{enqueued} of sweep.enqueue"] if enqueued else []
    if sweep.warm_start is not None:
        told.append(f"{points - enqueued} of the best of study {sweep.warm_start}")
    left = points + 1 - search.total
    lost = f"; the last {left} of them are never tried: sweep.n_trials={search.total}" if left > 0 else ""
    return [f"beginning with today's config and {' and '.join(told)}{lost}"]


def _how_long(plan: Plan, launcher: Launcher) -> str:
    """From trainings of the same size that lie in the folder; nobody can know otherwise."""
    seconds = []
    for folder in sorted(file.parent for file in plan.search.folder.rglob(RESULT))[-20:]:
        result = read_result(folder)
        if result is not None and result.get("status") == "finished":
            try:
                spec = read(folder)
            except UserError:
                continue
            took = result.get("train_seconds")
            if isinstance(took, int | float) and math.isfinite(took):
                seconds.append(took * plan.config.algorithm.iterations / spec.config.algorithm.iterations)
    if not seconds:
        return "for how long is known once the first training has ended"
    typical = sum(seconds) / len(seconds)
    config, trainings = plan.config, plan.search.total
    if config.sweep is not None:
        trainings *= config.sweep.seeds_per_trial
        trainings += (config.confirm.top_k + 1) * config.confirm.seeds if config.confirm.top_k else 0
    minutes = typical * math.ceil(trainings / launcher.slots) / 60
    return f"for about {minutes:.0f} min ({typical:.0f} s a training)"
