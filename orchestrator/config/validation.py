"""What is checked of a config before anything starts: that each value alone can be, and that they can be together."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from navtask.errors import ConfigError
from navtask.physics import BACKENDS, resolve_backend
from orchestrator import devices
from orchestrator.config import schema
from orchestrator.config.schema import Config, SweepConfig, task_of
from orchestrator.errors import UserError, as_user_error, did_you_mean, nearest, shown


def validate(config: Config) -> None:
    """Raise UserError, naming key, value and what was expected, for a config that cannot be run. Touches nothing."""
    for key, rule in RULES.items():
        value = _value(config, key)
        if value is not None:  # what may be null says something else then
            _check(rule.holds(value), key, value, rule.expected, rule.hint(value))
    _validate_device(config)
    _validate_batch(config)
    _validate_networks(config)
    _validate_evaluation(config)
    _validate_search(config)
    task = task_of(config)
    symmetry = config.algorithm.symmetry
    _check(symmetry == "none" or task.symmetric, "algorithm.symmetry", symmetry, f"none: {task.name} has no mirror")
    try:
        task.validate(config.task)
        for name, world in config.evaluation.frozen.items():
            task.validate_world(world, f"evaluation.frozen.{name}")
    except ConfigError as error:
        raise as_user_error(error) from error


# -- each value alone -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """What holds for a value, and how that is said."""

    expected: str
    holds: Callable[[Any], bool]
    choices: tuple[str, ...] = ()

    def hint(self, value: object) -> str:
        """The nearest of the choices, where there are any."""
        return did_you_mean(value, self.choices)


def _one_of(*choices: str) -> Rule:
    return Rule(f"one of {', '.join(choices)}", lambda value: value in choices, choices)


COUNT = Rule("at least 1", lambda value: value >= 1)
COUNT_OR_NONE = Rule("at least 0", lambda value: value >= 0)
SHARE = Rule("0 to 1", lambda value: 0 <= value <= 1)
COEFFICIENT = Rule("a finite number, at least 0", lambda value: 0 <= value < math.inf)
POSITIVE = Rule("a finite number above 0", lambda value: 0 < value < math.inf)
WIDTHS = Rule("widths of at least 1", lambda value: bool(value) and min(value) >= 1)
FOLDER = Rule(
    "letters, digits, dot, dash and underscore (it names a folder)",
    lambda value: re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value) is not None,
)

RULES: Mapping[str, Rule] = {
    "seed": Rule("0 to 2147483647", lambda value: 0 <= value < 2**31),
    "num_envs": Rule("1 to 1,000,000", lambda value: 1 <= value <= 1_000_000),
    "device": Rule("auto, cpu, cuda, cuda:0", lambda value: re.fullmatch(r"cpu|cuda(:\d+)?", value) is not None),
    "experiment_name": FOLDER,
    "physics.backend": _one_of("auto", *BACKENDS),
    "algorithm.iterations": COUNT,
    "algorithm.num_steps_per_env": COUNT,
    "algorithm.num_learning_epochs": COUNT,
    "algorithm.num_mini_batches": COUNT,
    "algorithm.checkpoint_every": COUNT,
    "algorithm.learning_rate": SHARE,
    "algorithm.schedule": _one_of(*schema.SCHEDULES),
    "algorithm.desired_kl": POSITIVE,
    "algorithm.desired_kl_end": POSITIVE,
    "algorithm.clip_param": POSITIVE,
    "algorithm.gamma": SHARE,
    "algorithm.lam": SHARE,
    "algorithm.entropy_coef": COEFFICIENT,
    "algorithm.value_loss_coef": COEFFICIENT,
    "algorithm.mirror_loss_coeff": COEFFICIENT,
    "algorithm.max_grad_norm": POSITIVE,
    "algorithm.bootstrap": _one_of(*schema.BOOTSTRAPS),
    "algorithm.symmetry": _one_of(*schema.SYMMETRIES),
    "algorithm.rnd.weight": POSITIVE,
    "algorithm.rnd.learning_rate": Rule("above 0, at most 1", lambda value: 0 < value <= 1),
    "algorithm.rnd.hidden_dims": WIDTHS,
    "algorithm.rnd.num_outputs": COUNT,
    "policy.hidden_dims": WIDTHS,
    "policy.activation": _one_of(*schema.ACTIVATIONS),
    "policy.distribution": _one_of(*schema.DISTRIBUTIONS),
    "policy.init_std": POSITIVE,
    "evaluation.every": COUNT,
    "evaluation.num_rooms": COUNT,
    "launcher.nproc_per_node": COUNT,
    "launcher.jobs_per_gpu": COUNT,
    "launcher.max_retries": COUNT_OR_NONE,
    "launcher.hang_timeout": Rule("seconds, above 0", lambda value: value > 0),
    "sweep.name": FOLDER,
    "sweep.n_trials": COUNT,
    "sweep.direction": _one_of(*schema.DIRECTIONS),
    "sweep.objective_window": COUNT,
    "sweep.seeds_per_trial": COUNT,
    "sweep.warm_start_top": COUNT,
    "confirm.top_k": COUNT_OR_NONE,
}


def _value(config: Config, key: str) -> Any:
    """What stands at a path; None where something on the way is null."""
    node: Any = config
    for name in key.split("."):
        node = getattr(node, name, None)
    return node


def _check(condition: bool, key: str, value: object, expected: str, hint: str = "") -> None:
    if not condition:
        raise UserError(f"{key}={shown(value)}: expected {expected}{hint}")


# -- values together --------------------------------------------------------------------------------------------------


def _validate_device(config: Config) -> None:
    if config.device.startswith("cuda"):
        gpus = devices.gpu_count()
        _check(gpus > 0, "device", config.device, "cpu: this machine has no GPU")
        index = int(config.device.partition(":")[2] or 0)
        _check(index < gpus, "device", config.device, f"cuda:0 to cuda:{gpus - 1}, the GPUs of this machine")
    try:
        resolve_backend(config.physics.backend, config.device)
    except ConfigError as error:
        raise as_user_error(error) from error
    threads = config.launcher.threads_per_job
    if threads is not None:
        cores = len(os.sched_getaffinity(0))
        _check(1 <= threads <= cores, "launcher.threads_per_job", threads, f"1 to {cores}, the cores of this machine")


def _validate_batch(config: Config) -> None:
    """Rooms are shared by processes, and what each of them collects by mini-batches."""
    processes, device = config.launcher.nproc_per_node, config.device
    key = "launcher.nproc_per_node"
    if processes > 1 and device.startswith("cuda"):
        gpus = 1 if ":" in device else devices.gpu_count()
        _check(processes <= gpus, key, processes, f"at most {gpus}, the GPUs of device={device}")
    _check(config.num_envs % processes == 0, key, processes, f"a divisor of num_envs={config.num_envs}")
    batch = config.num_envs // processes * config.algorithm.num_steps_per_env
    whose = ", num_envs * algorithm.num_steps_per_env =" if processes == 1 else " of one process,"
    parts = config.algorithm.num_mini_batches
    _check(parts <= batch, "algorithm.num_mini_batches", parts, f"at most the batch{whose} {batch}")


def _validate_networks(config: Config) -> None:
    seen, rnd = config.policy.obs_groups, config.algorithm.rnd
    for who in seen:
        _check_choice("policy.obs_groups", who, ("actor", "critic"))
    _check_groups(config, "policy.obs_groups.actor", seen.get("actor", []))
    _check_groups(config, "policy.obs_groups.critic", seen.get("critic", []))
    if rnd is not None:
        _check_groups(config, "algorithm.rnd.obs_groups", rnd.obs_groups)
    if "privileged" in seen["actor"]:
        raise UserError(
            "policy.obs_groups.actor=privileged: the actor drives a real robot, which has no access to the simulator's "
            "truth; only policy.obs_groups.critic may contain it"
        )


def _check_groups(config: Config, key: str, groups: list[str]) -> None:
    known = task_of(config).groups
    _check(bool(groups), key, groups, f"some of {', '.join(known)}")
    for group in groups:
        _check_choice(key, group, known)


def _check_choice(key: str, value: str, choices: Iterable[str]) -> None:
    rule = _one_of(*choices)
    _check(rule.holds(value), key, value, rule.expected, rule.hint(value))


def _validate_evaluation(config: Config) -> None:
    e = config.evaluation
    for key, name in [("set", e.set), *(("further_sets", name) for name in e.further_sets)]:
        _check(name in e.frozen, f"evaluation.{key}", name, "one of the frozen sets", nearest(name, e.frozen))


def _validate_search(config: Config) -> None:
    sweep, confirm = config.sweep, config.confirm
    if sweep is None:
        return
    if sweep.name == config.experiment_name:
        raise UserError(
            f"sweep.name={sweep.name}: expected another name than experiment_name's, the folder of single runs"
        )
    if config.seed + sweep.seeds_per_trial > 2**31:
        raise UserError(f"sweep.seeds_per_trial={sweep.seeds_per_trial}: seed={config.seed} leaves no room for as many")
    if config.require:
        raise UserError("require: belongs to single runs; a sweep is judged by sweep.objective")
    _validate_objectives(sweep)
    evaluations = config.algorithm.iterations // config.evaluation.every
    if evaluations < 1 and sweep.pruner is not None and (sweep.objective or "").startswith("Eval/"):
        raise UserError(
            f"evaluation.every={config.evaluation.every}: expected at most algorithm.iterations="
            f"{config.algorithm.iterations}, or sweep.pruner=null: there would be nothing to prune by"
        )
    if confirm.top_k > 0:
        why = "two trainings may happen to agree, and say nothing about how seeds vary"
        _check(3 <= confirm.seeds <= 1000, "confirm.seeds", confirm.seeds, f"3 to 1000: {why}")
        why = "a front has no one winner to confirm"
        _check(not sweep.objectives, "confirm.top_k", confirm.top_k, f"0 with several objectives: {why}")


def _validate_objectives(sweep: SweepConfig) -> None:
    several = sweep.objectives
    if sweep.objective is None:
        _check(len(several) > 1, "sweep.objective", None, "a metric, or two or more in sweep.objectives")
    else:
        others = ", ".join(several)
        _check(not several, "sweep.objective", sweep.objective, f"null beside sweep.objectives: {others}")
    if sweep.worst is not None:
        _check(math.isfinite(sweep.worst), "sweep.worst", sweep.worst, "a finite number")
        _check(not several, "sweep.worst", sweep.worst, "null: each of sweep.objectives has its own worst")
    for name, objective in several.items():
        key = f"sweep.objectives.{name}"
        _check_choice(f"{key}.direction", objective.direction, schema.DIRECTIONS)
        _check(math.isfinite(objective.worst), f"{key}.worst", objective.worst, "a finite number")
    if several and sweep.pruner is not None:
        raise UserError(
            "sweep.pruner: expected null with several objectives: which of two trials is behind when each leads in one "
            "of them can't be told"
        )
    for name, constraint in sweep.constraints.items():
        key, low, high = f"sweep.constraints.{name}", constraint.min, constraint.max
        bounds = [bound for bound in (low, high) if bound is not None]
        if not bounds or not all(math.isfinite(bound) for bound in bounds):
            raise UserError(f"{key}: expected min, max or both, finite numbers")
        if low is not None and high is not None:
            _check(low <= high, f"{key}.min", low, f"at most max={high}")
