"""``python -m orchestrator.evaluate run=<trial's folder | checkpoint | MLflow run id> policy=<planner> set=dense``.

One table: learned policies and classical planners, as many as are named, on the same frozen rooms. A run is evaluated
under its own task, with the set's world in place of the one that it was trained in; a set that its config doesn't have
is today's. Planners drive under the first run's task, or today's where no run is named.

    run=      a trial's folder (its newest checkpoint), one of its checkpoints, or the id of a run in MLflow
    policy=   a planner of the task: straight, dynamic_window
    set=      the frozen set; by default the one that the first run is judged on
    rooms=    how many of its rooms; by default as many as the first run is judged on
    task=     whose planners, where no run is named; nav by default
    device=   auto, cpu or cuda; auto by default
    tracking.uri=   where MLflow's runs are; sqlite:///mlruns/mlflow.db by default
    --json    the same as JSON
    --metrics what each metric means, and where it comes from; evaluates nothing

Exit codes: 0 done, 1 failed, 2 a mistake, 130 interrupted.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from navtask import tasks
from navtask.errors import ConfigError
from navtask.physics import resolve_backend
from navtask.tasks import TaskDefinition
from orchestrator import command
from orchestrator.command import Arguments
from orchestrator.config import Config, compose, task_of
from orchestrator.errors import UserError, nearest
from orchestrator.job import spec
from orchestrator.sources import training_folder

if TYPE_CHECKING:  # torch takes seconds to import: not before all that is asked for is known to be right
    import torch
    from tensordict import TensorDict

    from navtask.evaluation import Estimate, Evaluator, Policy

KEYS = ("run", "policy", "set", "rooms", "task", "device", "tracking.uri")
MOST_ROOMS = 100_000
CHECKPOINT = ".pt"


@dataclass(frozen=True)
class Contestant:
    """A policy to be evaluated, and the config whose task it drives under."""

    name: str
    config: Config
    make: Callable[[Evaluator], Policy]


@dataclass(frozen=True)
class Result:
    """What a policy came to."""

    name: str
    set_hash: str
    unreachable_share: float
    metrics: Mapping[str, Estimate]


# -- who takes part ----------------------------------------------------------------------------------------------------


def find_run(source: str, uri: str) -> Contestant:
    """The policy of a trial's folder, of a checkpoint, or of a run in MLflow. Raises UserError."""
    path = Path(source)
    if path.suffix == CHECKPOINT and path.is_file():
        return _of_checkpoint(path, source, spec.read(path.resolve().parent.parent).config)
    folder = training_folder(source)
    if folder is None:
        return _of_mlflow(source, uri)
    trial = spec.read(folder)
    from orchestrator.job import checkpoint

    found = checkpoint.latest(folder)
    if found is None:
        raise UserError(f"run={source}: no checkpoint that could be read, expected {spec.CHECKPOINTS}")
    try:
        return _of_state(f"{source} @{found['iteration']}", trial.config, found)
    except (KeyError, TypeError) as error:
        raise UserError(f"run={source}: its newest checkpoint holds something else") from error


def _of_checkpoint(path: Path, source: str, config: Config) -> Contestant:
    import torch

    try:
        return _of_state(source, config, torch.load(path, weights_only=True, map_location="cpu"))
    except Exception as error:  # torch raises whatever the damage leads to
        raise UserError(f"run={source}: not a checkpoint ({type(error).__name__})") from error


def _of_state(name: str, config: Config, state: Mapping[str, Any]) -> Contestant:
    weights = state["algorithm"]["actor_state_dict"]

    def make(evaluator: Evaluator) -> Policy:
        from orchestrator.job.runner import build_actor

        env = evaluator.env
        actor = build_actor(config.policy, env.get_observations(), env.num_actions).to(env.device)
        try:
            actor.load_state_dict(weights)
        except RuntimeError as error:
            raise UserError(f"run={name}: its checkpoint does not fit its config") from error
        return actor.eval()

    return Contestant(name, config, make)


def _of_mlflow(run_id: str, uri: str) -> Contestant:
    """The model that a finished run keeps in MLflow: plain arrays, equal to the checkpoint's actions within 1e-5."""
    import torch

    from navtask.numpy_policy import NumpyPolicy
    from orchestrator.record.model import NAME
    from orchestrator.record.reading import open_run

    run = open_run(run_id, uri)
    config = run.config()
    with run.artifact(f"{NAME}/artifacts/policy.npz") as file:
        if file is None:
            raise UserError(f"run={run_id}: '{run.name}' keeps no policy: a training that did not finish?")
        try:
            policy = NumpyPolicy(file)
        except Exception as error:  # NumPy raises whatever the damage leads to
            raise UserError(f"run={run_id}: the policy of '{run.name}' is damaged ({type(error).__name__})") from error

    def act(observation: TensorDict) -> torch.Tensor:
        # The actor sees its groups side by side, in the config's order.
        seen = torch.cat([observation[group] for group in config.policy.obs_groups["actor"]], -1)
        return torch.from_numpy(policy(seen.cpu().numpy())).to(seen.device)

    return Contestant(f"{run.name} ({run_id[:8]})", config, lambda evaluator: act)


def find_planner(name: str, config: Config) -> Contestant:
    """A classical planner of the config's task. Raises UserError."""
    task = task_of(config)
    if name not in task.planners:
        known = nearest(name, task.planners) if task.planners else ""
        raise UserError(f"policy={name}: expected a planner of the task {task.name}{known or ', which has none'}")
    try:
        planner = task.make_planner(name, config.task)
    except ConfigError as error:
        raise UserError(f"policy={name}: {error}") from error
    return Contestant(name, config, lambda evaluator: planner)


def todays_config(task: str, device: str = "auto") -> Config:
    """What ``conf/`` says now. Raises UserError when there is no such task or device."""
    if task not in tasks.names():
        raise UserError(f"task={task}: no such task{nearest(task, tasks.names())}")
    return compose(f"task={task}", f"device={device}")


# -- the evaluation ----------------------------------------------------------------------------------------------------


def world_of_set(name: str, config: Config, today: Config) -> Any:
    """The world of a frozen set: the config's own, or today's. Raises UserError when neither knows it."""
    sets = {**today.evaluation.frozen, **config.evaluation.frozen}
    if name not in sets:
        raise UserError(f"set={name}: no such frozen set{nearest(name, sets)}")
    return sets[name]


def check_engine(contestant: Contestant, device: str) -> None:
    """Raise UserError where a contestant's engine doesn't run on a device."""
    backend = contestant.config.physics.backend
    try:
        resolve_backend(backend, device)
    except ConfigError as error:
        raise UserError(f"device={device}: {contestant.name} drives in {backend}; expected device=cpu") from error


def evaluate(contestant: Contestant, world: Any, rooms: int, device: str) -> Result:
    """One episode in each of the frozen rooms of a world."""
    import torch

    config = contestant.config
    evaluator = task_of(config).make_evaluator(
        config.task,
        world,
        rooms,
        device=device,
        backend=resolve_backend(config.physics.backend, device),
        threads=len(os.sched_getaffinity(0)),
    )
    policy = contestant.make(evaluator)
    with torch.inference_mode():
        measured = evaluator.run(policy)
    return Result(contestant.name, evaluator.set_hash, evaluator.unreachable_share, evaluator.estimates(measured))


# -- what is shown -----------------------------------------------------------------------------------------------------


def table(results: Sequence[Result], name: str, rooms: int, width: int | None = None) -> list[str]:
    """Lines: a row of values for each policy, and under it their 95 % intervals. Where there is room for ``width``
    characters only, names are cut and the last metrics left out, which is said."""
    names = [result.name for result in results]
    if width is not None:
        longest = max(len("policy"), width // 3)
        names = [name if len(name) <= longest else f"…{name[-longest + 1 :]}" for name in names]
    cells = [["policy", *results[0].metrics]]
    for result, shown in zip(results, names, strict=True):
        estimates = result.metrics.values()
        cells.append([shown, *("-" if math.isnan(e.value) else f"{e.value:z.3f}" for e in estimates)])
        cells.append(["", *("" if math.isnan(e.low) else f"[{e.low:z.3f}, {e.high:z.3f}]" for e in estimates)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while width is not None and sum(widths) + 2 * (len(widths) - 1) > width and len(widths) > 2:
        widths.pop()
    left_out = cells[0][len(widths) :]
    cells = [row[: len(widths)] for row in cells]
    lines = [f"{rooms} rooms of '{name}' ({results[0].set_hash}), one episode each; in brackets 95 % intervals", ""]
    for row in cells:
        right = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *right]))
    if left_out:
        lines += ["", f"no room for {', '.join(left_out)}: take a wider terminal, --json, or a file"]
    for result in results:
        if result.set_hash != results[0].set_hash:
            lines.append(f"not the same rooms: {result.name} drove in {result.set_hash}")
        if result.unreachable_share:
            lines.append(f"{result.name}: {result.unreachable_share:.1%} of the goals can't be reached")
    return lines


def as_json(results: Sequence[Result], task: str, name: str, rooms: int) -> str:
    """The same for programs; null where there is no number."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    policies = [
        {
            "policy": result.name,
            "set_hash": result.set_hash,
            "unreachable_share": result.unreachable_share,
            "metrics": {
                metric: {"value": number(e.value), "low": number(e.low), "high": number(e.high)}
                for metric, e in result.metrics.items()
            },
        }
        for result in results
    ]
    return json.dumps({"task": task, "set": name, "rooms": rooms, "policies": policies}, indent=1)


def definitions(task: TaskDefinition) -> list[str]:
    """Lines: each metric of a task and what it means."""
    width = max(len(name) for name in task.metrics)
    return [f"{name.ljust(width)}  {meaning}" for name, meaning in task.metrics.items()]


# -- the command -------------------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says. Raises UserError before anything is evaluated."""
    given = Arguments(arguments, KEYS, flags=("--json", "--metrics"), repeatable=("run", "policy"))
    if "--metrics" in given.flags:
        print("\n".join(definitions(task_of(todays_config(given.get("task") or "nav")))))
        return 0

    wanted = given.get("rooms")
    if wanted is not None:
        _rooms(wanted)
    if not {"run", "policy"} & {key for key, _ in given.pairs}:
        raise UserError("nothing to evaluate: expected run=<folder or MLflow run id> or policy=<planner>")
    uri = given.tracking_uri()
    runs = [find_run(value, uri) for key, value in given.pairs if key == "run"]
    task = given.get("task") or (runs[0].config.task.name if runs else "nav")
    today = todays_config(task, given.get("device") or "auto")
    own = runs[0].config if runs else today
    for contestant in runs:
        if contestant.config.task.name != today.task.name:
            raise UserError(f"run={contestant.name}: its task is {contestant.config.task.name}, not {today.task.name}")
    name = given.get("set") or own.evaluation.set
    rooms = own.evaluation.num_rooms if wanted is None else _rooms(wanted)
    world_of_set(name, own, today)
    contestants = runs + [find_planner(value, own) for key, value in given.pairs if key == "policy"]
    for contestant in contestants:
        check_engine(contestant, today.device)
    worlds = [world_of_set(name, contestant.config, today) for contestant in contestants]

    import torch

    torch.set_num_threads(1)
    results = [evaluate(c, world, rooms, today.device) for c, world in zip(contestants, worlds, strict=True)]
    if "--json" in given.flags:
        print(as_json(results, today.task.name, name, rooms))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(table(results, name, rooms, width)))
    return 0


def _rooms(given: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= MOST_ROOMS:
        raise UserError(f"rooms={given}: expected a whole number, 1 to {MOST_ROOMS:,}")
    return int(given)


if __name__ == "__main__":
    sys.exit(command.run(run, __doc__))
