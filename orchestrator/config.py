"""The schema of everything that can be configured, and what is checked before anything starts.

The numbers are in ``conf/``; here are names, types and bounds. Config is read at the edge: Hydra composes a DictConfig,
``load`` turns it into these dataclasses, and nothing further in ever sees a DictConfig.
"""

import glob
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from navtask import tasks
from navtask.errors import ConfigError
from navtask.physics import BACKENDS, resolve_backend
from navtask.tasks import TaskDefinition
from orchestrator.errors import UserError, nearest
from orchestrator.record.fields import flatten

PROJECT = Path(__file__).resolve().parent.parent
"""Relative output paths are taken from here, whatever the working directory."""

SCHEDULES = ("adaptive", "fixed")
BOOTSTRAPS = ("final_obs", "current")
SYMMETRIES = ("none", "augmentation", "mirror_loss", "both")
DISTRIBUTIONS = ("GaussianDistribution", "HeteroscedasticGaussianDistribution", "BetaDistribution")
ACTIVATIONS = ("elu", "selu", "relu", "lrelu", "tanh", "sigmoid", "softplus", "gelu", "swish", "mish")
DIRECTIONS = ("maximize", "minimize")


@dataclass(kw_only=True)
class PhysicsConfig:
    """Which engine moves the bodies."""

    backend: str = MISSING
    """``auto`` (mujoco_c on a CPU, mujoco_warp on CUDA), ``mujoco_c`` or ``mujoco_warp``."""
    cuda_graph: bool = True
    """Capture each environment step on CUDA as one graph. Off for a term that can't be captured, or to find a fault."""


@dataclass(kw_only=True)
class RndConfig:
    """Random network distillation (Burda et al. 2018): a reward for states that a network can't predict yet."""

    weight: float = MISSING
    """Of this reward, as ``task.rewards.<term>.weight`` are of the others. It enters the returns that are learned from;
    ``Train/mean_reward`` and evaluations don't know of it."""
    obs_groups: list[str] = MISSING
    """What is to be new: ``policy``, ``privileged`` or both."""
    hidden_dims: list[int] = MISSING
    """Widths of the hidden layers, of the network that predicts and of the random one that it predicts."""
    num_outputs: int = MISSING
    """How many numbers are predicted."""
    learning_rate: float = MISSING
    """Adam's, of the predicting network."""


@dataclass(kw_only=True)
class AlgorithmConfig:
    """PPO."""

    iterations: int = MISSING
    """Rollout + update, this many times."""
    num_steps_per_env: int = MISSING
    """Length of a rollout, control steps."""
    num_learning_epochs: int = MISSING
    """Passes over each rollout."""
    num_mini_batches: int = MISSING
    """Parts that each pass is cut into."""
    learning_rate: float = MISSING
    """Adam's; the start value under the adaptive schedule. 0 is allowed, and learns nothing."""
    schedule: str = MISSING
    """``adaptive`` (steers the KL to ``desired_kl``) or ``fixed``."""
    desired_kl: float = MISSING
    """KL between old and new policy that the adaptive schedule aims at, at the start."""
    desired_kl_end: float = MISSING
    """And at the end; in between it goes linearly. Smaller steps at the end keep the policy from wandering."""
    clip_param: float = MISSING
    """Clip range of the probability ratio and of the value loss."""
    gamma: float = MISSING
    """Discount per control step."""
    lam: float = MISSING
    """Lambda of the generalised advantage estimate."""
    entropy_coef: float = MISSING
    """Weight of the entropy bonus."""
    value_loss_coef: float = MISSING
    """Weight of the value loss."""
    max_grad_norm: float = MISSING
    """Largest gradient norm, for actor and critic each."""
    use_clipped_value_loss: bool = MISSING
    """Clip the value loss like the ratio."""
    bootstrap: str = MISSING
    """A time-out is worth V of the state it ended in, ``final_obs``, or of the one before, ``current``."""
    symmetry: str = MISSING
    """Left-right mirror symmetry: ``none``, ``augmentation``, ``mirror_loss`` or ``both``."""
    mirror_loss_coeff: float = MISSING
    """Weight of the mirror loss, where it is used."""
    rnd: RndConfig | None = MISSING
    """Null: no reward but the task's own."""
    checkpoint_every: int = MISSING
    """Iterations between two checkpoints."""


@dataclass(kw_only=True)
class PolicyConfig:
    """The networks."""

    hidden_dims: list[int] = MISSING
    """Widths of the hidden layers, actor and critic alike."""
    activation: str = MISSING
    """As rsl_rl names it."""
    obs_normalization: bool = MISSING
    """Running mean and variance of each observation."""
    distribution: str = MISSING
    """Of the actions, a class of rsl_rl."""
    init_std: float = MISSING
    """Standard deviation of the actions at the start."""
    obs_groups: dict[str, list[str]] = MISSING
    """What ``actor`` and ``critic`` see: ``policy``; the critic may see ``privileged`` as well."""


@dataclass(kw_only=True)
class EvaluationConfig:
    """Frozen rooms that training never sees."""

    every: int = MISSING
    """Iterations between two evaluations; there is one more at the end."""
    num_rooms: int = MISSING
    """Rooms in a frozen set, one episode each."""
    set: str = MISSING
    """The frozen set that the run is judged on: ``Eval/…``."""
    further_sets: list[str] = MISSING
    """Further sets, evaluated at the end: ``Eval_<set>/…``."""
    frozen: dict[str, Any] = MISSING
    """The sets by name, each a world of the task: for ``nav`` how rooms are drawn."""


@dataclass(kw_only=True)
class LauncherConfig:
    """Where jobs run."""

    class_name: str = MISSING
    """``pkg.mod:Class``."""
    threads_per_job: int | None = MISSING
    """CPU cores of a job; null: one for each of its processes in a sweep, all of them for a single run."""
    nproc_per_node: int = 1
    """Processes that train one policy together, with a share of the rooms each; named as torchrun names it. On CUDA
    each has a GPU of its own."""
    jobs_per_gpu: int = MISSING
    """Jobs at a time on one GPU."""
    max_retries: int = MISSING
    """How often a job that died goes on from its last checkpoint before its trial has failed."""
    hang_timeout: float = MISSING
    """A job that shows no sign of life for so many seconds is killed (and counts as one that died)."""


@dataclass(kw_only=True)
class TrackingConfig:
    """Where MLflow records."""

    uri: str | None = MISSING
    """MLflow's tracking URI; null records nothing there (files and TensorBoard are written all the same)."""


@dataclass(kw_only=True)
class ObjectiveConfig:
    """One of several objectives."""

    direction: str = MISSING
    """``maximize`` or ``minimize``."""
    worst: float = MISSING
    """What counts as the worst: told where the metric is undefined (no success, no time to goal), and the corner from
    which the hypervolume is measured."""


@dataclass(kw_only=True)
class ConstraintConfig:
    """Bounds of a metric that a trial must keep to."""

    min: float | None = None
    max: float | None = None


@dataclass(kw_only=True)
class SweepConfig:
    """A search over config values."""

    name: str = MISSING
    """Of the study: its folder is ``<output_dir>/<name>``."""
    n_trials: int = MISSING
    """Trials of the whole study, the baseline (trial 0) among them."""
    objective: str | None = None
    """A metric of the frozen evaluation, ``Eval/…``; or there are several ``objectives``."""
    direction: str = "maximize"
    """``maximize`` or ``minimize``, of ``objective``."""
    objectives: dict[str, ObjectiveConfig] = field(default_factory=dict)
    """Metric -> how it is judged, instead of ``objective``: the search then looks for the Pareto front."""
    constraints: dict[str, ConstraintConfig] = field(default_factory=dict)
    """Metric -> bounds. Trials that break one are never the best, nor on the front."""
    objective_window: int = 3
    """Objectives and constraints are means over this many last evaluations, since a policy wanders."""
    seeds_per_trial: int = 1
    """Trainings of each trial, with the seeds ``seed``, ``seed`` + 1, …: the study is told their mean. One that fails
    fails the trial."""
    params: dict[str, Any] = field(default_factory=dict)
    """Config path -> values, in the grammar of ``orchestrator/search/space.py``."""
    space: str | None = None
    """``pkg.mod.function(trial, params) -> {config path: value}``: a conditional part of the space."""
    sampler: dict[str, Any] = field(default_factory=lambda: {"_target_": "optuna.samplers.TPESampler"})
    """Any sampler of Optuna, by ``_target_``."""
    pruner: Any = None
    """Any pruner of Optuna, by ``_target_``; null lets every trial run to its end. The baseline is never stopped.

    With several seeds a trial stands where the mean of all its seeds does, at each evaluation that all have reached;
    ``WilcoxonPruner`` is told how each seed ended instead, and compares two trials seed by seed."""
    enqueue: list[dict[str, Any]] = field(default_factory=list)
    """Known good points {config path: value}, tried right after the baseline."""
    warm_start: str | None = None
    """An earlier study: its best points are tried after the enqueued ones."""
    warm_start_top: int = 3
    """How many of them."""


@dataclass(kw_only=True)
class ConfirmConfig:
    """After a search: the best trials and the baseline once more, on seeds that the search never saw."""

    top_k: int = MISSING
    """How many of the best are compared with the baseline; 0: none, and the best is said to be unconfirmed."""
    seeds: int = MISSING
    """Trainings of each of them and of the baseline."""


@dataclass(kw_only=True)
class Config:
    """Everything."""

    task: Any = MISSING
    """Settings of the task ``task.name``, in its own dataclass."""
    physics: PhysicsConfig = MISSING
    algorithm: AlgorithmConfig = MISSING
    policy: PolicyConfig = MISSING
    evaluation: EvaluationConfig = MISSING
    launcher: LauncherConfig = MISSING
    tracking: TrackingConfig = MISSING
    sweep: SweepConfig | None = None
    confirm: ConfirmConfig = MISSING
    seed: int = MISSING
    """Of the training: equal seeds give equal runs on a CPU."""
    device: str = MISSING
    """``cpu``, ``cuda``, ``cuda:1``, or ``auto``: the best there is."""
    num_envs: int = MISSING
    """Rooms that are trained in at a time."""
    experiment_name: str = MISSING
    """MLflow's experiment, and the folder of single runs."""
    output_dir: str = MISSING
    """Where studies and runs are kept."""
    doctor: bool = MISSING
    """``on``: before a sweep the environment is examined, and a sick one refused; ``off``: not."""
    dry_run: bool = MISSING
    """Print what would be run, and start nothing."""
    require: dict[str, float] = MISSING
    """Metric -> least value at the end (mean over the objective's window); less is a failure, exit code 1."""


def _composed(config: type) -> type:
    """A task's dataclass while Hydra composes it: OmegaConf refuses to add an entry to a mapping of dataclasses, and a
    term that somebody registered must be addable on the command line. ``from_plain`` types the terms."""
    hints = get_type_hints(config)
    loose = [
        (f.name, dict[str, Any])
        for f in fields(config)
        if get_origin(hints[f.name]) is dict and is_dataclass(get_args(hints[f.name])[1])
    ]
    return make_dataclass(f"Composed{config.__name__}", loose, bases=(config,), kw_only=True)


def register() -> None:
    """Make the schema known to Hydra, and ``by_device`` to OmegaConf. Safe to call again."""
    store = ConfigStore.instance()
    store.store(name="config_schema", node=Config)
    for name in tasks.names():
        store.store(group="task", name=f"{name}_schema", node=_composed(tasks.get(name).config))
    OmegaConf.register_new_resolver("by_device", _by_device, replace=True)


def _by_device(device: str, cpu: Any, cuda: Any) -> Any:
    """``${by_device:${device},256,4096}``: one value for a CPU, one for a GPU."""
    return cuda if resolve_device(device).startswith("cuda") else cpu


def gpu_count() -> int:
    """GPUs that this process may use. Looks at device files only: nothing may touch CUDA outside a job."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = len([p for p in glob.glob("/dev/nvidia*") if re.fullmatch(r"/dev/nvidia\d+", p)])
    return min(present, len([d for d in visible.split(",") if d.strip()])) if visible is not None else present


def resolve_device(device: str) -> str:
    """``auto`` made concrete; anything else as it is."""
    if device != "auto":
        return device
    return "cuda" if gpu_count() else "cpu"


def from_composed(composed: DictConfig) -> Config:
    """The typed, checked config of what Hydra composed. Raises UserError."""
    config = to_typed(composed)
    validate(config)
    return config


def to_typed(composed: DictConfig) -> Config:
    """The dataclasses of a composed config, interpolations and device resolved. Raises UserError; checks types only."""
    try:
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(one_line(error)) from error
    assert isinstance(plain, dict)
    return from_plain({str(key): value for key, value in plain.items()})


def from_plain(plain: Mapping[str, Any]) -> Config:
    """The dataclasses of a plain mapping, typed through the schema; imports and runs nothing that it names.

    Raises UserError.
    """
    if not isinstance(plain, Mapping):  # a file may hold anything
        raise UserError("a config: expected a mapping of keys to values")
    for path, value in flatten(plain):
        if "${" in str(value):  # what we write is resolved already; a stranger's would read our environment
            raise UserError(f"{path}={value}: expected a plain value, without interpolation")
    schema = OmegaConf.structured(Config)
    task = definition(plain)
    try:
        schema.task = OmegaConf.structured(task.config)
        evaluation = OmegaConf.structured(EvaluationConfig)
        evaluation.frozen = {name: OmegaConf.structured(task.world_type) for name in _frozen_names(plain)}
        schema.evaluation = evaluation
        typed = OmegaConf.to_object(OmegaConf.merge(schema, OmegaConf.create(dict(plain))))
    except OmegaConfBaseException as error:
        told = one_line(error)
        others = [path for path, _ in flatten(plain) if path != error.full_key] + list(Config.__dataclass_fields__)
        raise UserError(told + (nearest(error.full_key, others) if told.endswith("no such key") else "")) from error
    assert isinstance(typed, Config)
    typed.device = resolve_device(typed.device)
    return typed


def definition(plain: Mapping[str, Any]) -> TaskDefinition:
    """The task that a plain config is of. Raises UserError."""
    named = plain.get("task")
    try:
        return tasks.get(named.get("name", "") if isinstance(named, Mapping) else "")
    except ConfigError as error:
        raise _as_user_error(error) from error


def task_of(config: Config) -> TaskDefinition:
    """The task that a config is of."""
    return tasks.get(config.task.name)


def world_of(config: Config) -> Any:
    """What the config's task draws anew each episode."""
    return getattr(config.task, task_of(config).world)


def _frozen_names(plain: Mapping[str, Any]) -> list[str]:
    evaluation = plain.get("evaluation")
    frozen = evaluation.get("frozen") if isinstance(evaluation, Mapping) else None
    return [str(name) for name in frozen] if isinstance(frozen, Mapping) else []


def to_plain(config: Config) -> dict[str, Any]:
    """The config as plain dicts, lists and scalars: what is written as YAML, and read back by ``from_plain``."""
    return asdict(config)


def one_line(error: OmegaConfBaseException) -> str:
    """An OmegaConf error as one line that names the key."""
    first = str(error.msg or error).splitlines()[0]
    if first.startswith("Missing mandatory value"):
        return f"{error.full_key}: a value is needed"
    match = re.match(r"Value '(.*)' (?:of type '.*' could not be converted to|is not a valid) (\w+)", first)
    if match:
        return f"{error.full_key}={match[1]}: expected {_KINDS.get(match[2], match[2])}"
    if error.full_key and re.match(r"Key '.*' (not in|is not in)", first):
        return f"{error.full_key}: no such key"
    return f"{error.full_key}: {first}" if error.full_key and error.full_key not in first else first


_KINDS = {"Integer": "a whole number", "Float": "a number", "bool": "true or false", "string": "a text"}


def _check(condition: bool, key: str, value: object, expected: str, hint: str = "") -> None:
    if not condition:
        raise UserError(f"{key}={value}: expected {expected}{hint}")


def _one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    _check(value in choices, key, value, f"one of {', '.join(choices)}", nearest(value, choices) if value else "")


def validate(config: Config) -> None:
    """Raise UserError, naming key, value and what was expected, for a config that cannot be run. Touches nothing."""
    _validate_learning(config)
    _validate_evaluation(config)
    _validate_running(config)
    task = task_of(config)
    try:
        task.validate(config.task)
        for name, world in config.evaluation.frozen.items():
            task.validate_world(world, f"evaluation.frozen.{name}")
    except ConfigError as error:
        raise _as_user_error(error) from error


def _as_user_error(error: ConfigError) -> UserError:
    known = nearest(error.key.rpartition(".")[2], error.candidates)
    return UserError(f"{error.key}={error.value}: expected {error.expected}{known}")


def _validate_learning(config: Config) -> None:
    a = config.algorithm
    for key in ("iterations", "num_steps_per_env", "num_learning_epochs", "num_mini_batches", "checkpoint_every"):
        _check(getattr(a, key) >= 1, f"algorithm.{key}", getattr(a, key), "at least 1")
    _check(1 <= config.num_envs <= 1_000_000, "num_envs", config.num_envs, "1 to 1,000,000")
    _check(0 <= config.seed < 2**31, "seed", config.seed, "0 to 2147483647")
    batch = config.num_envs * a.num_steps_per_env
    _check(
        a.num_mini_batches <= batch,
        "algorithm.num_mini_batches",
        a.num_mini_batches,
        f"at most the batch, num_envs * algorithm.num_steps_per_env = {batch}",
    )
    for key, low, high in (
        ("learning_rate", 0.0, 1.0),
        ("entropy_coef", 0.0, math.inf),
        ("value_loss_coef", 0.0, math.inf),
        ("mirror_loss_coeff", 0.0, math.inf),
        ("gamma", 0.0, 1.0),
        ("lam", 0.0, 1.0),
    ):
        value = getattr(a, key)
        bounds = f"{low:g} to {high:g}" if math.isfinite(high) else f"a finite number, at least {low:g}"
        _check(low <= value <= high and math.isfinite(value), f"algorithm.{key}", value, bounds)
    for key in ("desired_kl", "desired_kl_end", "clip_param", "max_grad_norm"):
        value = getattr(a, key)
        _check(value > 0 and math.isfinite(value), f"algorithm.{key}", value, "a finite number above 0")
    _one_of("algorithm.schedule", a.schedule, SCHEDULES)
    _one_of("algorithm.bootstrap", a.bootstrap, BOOTSTRAPS)
    _one_of("algorithm.symmetry", a.symmetry, SYMMETRIES)
    task = task_of(config)
    _check(a.symmetry == "none" or task.symmetric, "algorithm.symmetry", a.symmetry, f"none: {task.name} has no mirror")

    p = config.policy
    _check(bool(p.hidden_dims) and min(p.hidden_dims) >= 1, "policy.hidden_dims", p.hidden_dims, "widths of at least 1")
    _check(p.init_std > 0 and math.isfinite(p.init_std), "policy.init_std", p.init_std, "a finite number above 0")
    _one_of("policy.activation", p.activation, ACTIVATIONS)
    _one_of("policy.distribution", p.distribution, DISTRIBUTIONS)
    for who in p.obs_groups:
        _one_of("policy.obs_groups", who, ("actor", "critic"))
    for who in ("actor", "critic"):
        groups = p.obs_groups.get(who, [])
        _check(bool(groups), f"policy.obs_groups.{who}", groups, f"some of {', '.join(task.groups)}")
        for group in groups:
            _one_of(f"policy.obs_groups.{who}", group, tuple(task.groups))
    if a.rnd is not None:
        _validate_rnd(a.rnd, tuple(task.groups))
    if "privileged" in p.obs_groups["actor"]:
        raise UserError(
            "policy.obs_groups.actor=privileged: the actor drives a real robot, which has no access to the simulator's "
            "truth; only policy.obs_groups.critic may contain it"
        )


def _validate_rnd(rnd: RndConfig, groups: tuple[str, ...]) -> None:
    key = "algorithm.rnd"
    _check(rnd.weight > 0 and math.isfinite(rnd.weight), f"{key}.weight", rnd.weight, "a finite number above 0")
    _check(0 < rnd.learning_rate <= 1, f"{key}.learning_rate", rnd.learning_rate, "above 0, at most 1")
    widths = rnd.hidden_dims
    _check(bool(widths) and min(widths) >= 1, f"{key}.hidden_dims", widths, "widths of at least 1")
    _check(rnd.num_outputs >= 1, f"{key}.num_outputs", rnd.num_outputs, "at least 1")
    _check(bool(rnd.obs_groups), f"{key}.obs_groups", rnd.obs_groups, f"some of {', '.join(groups)}")
    for group in rnd.obs_groups:
        _one_of(f"{key}.obs_groups", group, groups)


def _validate_evaluation(config: Config) -> None:
    e = config.evaluation
    _check(e.every >= 1, "evaluation.every", e.every, "at least 1")
    _check(e.num_rooms >= 1, "evaluation.num_rooms", e.num_rooms, "at least 1")
    for key, name in [("set", e.set), *(("further_sets", name) for name in e.further_sets)]:
        _check(name in e.frozen, f"evaluation.{key}", name, "one of the frozen sets", nearest(name, e.frozen))


def _validate_running(config: Config) -> None:
    _one_of("physics.backend", config.physics.backend, ("auto", *BACKENDS))
    _check(
        re.fullmatch(r"cpu|cuda(:\d+)?", config.device) is not None, "device", config.device, "auto, cpu, cuda, cuda:0"
    )
    if config.device.startswith("cuda"):
        gpus = gpu_count()
        _check(gpus > 0, "device", config.device, "cpu: this machine has no GPU")
        index = int(config.device.partition(":")[2] or 0)
        _check(index < gpus, "device", config.device, f"cuda:0 to cuda:{gpus - 1}, the GPUs of this machine")
    try:
        resolve_backend(config.physics.backend, config.device)
    except ConfigError as error:
        raise _as_user_error(error) from error
    check_name("experiment_name", config.experiment_name)
    launcher = config.launcher
    if launcher.threads_per_job is not None:
        cores = len(os.sched_getaffinity(0))
        key, threads = "launcher.threads_per_job", launcher.threads_per_job
        _check(1 <= threads <= cores, key, threads, f"1 to {cores}, the cores of this machine")
    _validate_processes(config)
    _check(launcher.jobs_per_gpu >= 1, "launcher.jobs_per_gpu", launcher.jobs_per_gpu, "at least 1")
    _check(launcher.max_retries >= 0, "launcher.max_retries", launcher.max_retries, "at least 0")
    _check(launcher.hang_timeout > 0, "launcher.hang_timeout", launcher.hang_timeout, "seconds, above 0")


def _validate_processes(config: Config) -> None:
    key, processes = "launcher.nproc_per_node", config.launcher.nproc_per_node
    _check(processes >= 1, key, processes, "at least 1")
    if processes == 1:
        return
    if config.device.startswith("cuda"):
        gpus = 1 if ":" in config.device else gpu_count()
        _check(processes <= gpus, key, processes, f"at most {gpus}, the GPUs of device={config.device}")
    _check(config.num_envs % processes == 0, key, processes, f"a divisor of num_envs={config.num_envs}")
    batch = config.num_envs // processes * config.algorithm.num_steps_per_env
    parts = config.algorithm.num_mini_batches
    _check(parts <= batch, "algorithm.num_mini_batches", parts, f"at most the batch of one process, {batch}")


def check_name(key: str, name: str) -> None:
    """Raise UserError unless ``name`` can be a folder's name."""
    _check(
        re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is not None,
        key,
        name,
        "letters, digits, dot, dash and underscore (it names a folder)",
    )


register()
