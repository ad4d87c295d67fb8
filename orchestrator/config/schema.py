"""The schema: names and types of everything that can be configured. The numbers are in ``conf/``."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from navtask import tasks
from navtask.tasks import TaskDefinition

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
    worst: float | None = None
    """What ``objective`` counts as where an evaluation has none, such as the time to goal of a policy that never gets
    there; null: that fails the trial."""
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
    """Config path -> values, in the grammar of ``orchestrator/search/grammar.py``; null takes a path out again."""
    space: str | None = None
    """``pkg.mod.function(trial, params) -> {config path: value}``: a conditional part of the space."""
    sampler: dict[str, Any] = field(default_factory=lambda: {"_target_": "optuna.samplers.TPESampler"})
    """Any sampler of Optuna, by ``_target_``."""
    pruner: Any = None  # a mapping or null; OmegaConf can't put a mapping where one is null, unless the type is open
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


def task_of(config: Config) -> TaskDefinition:
    """The task that a config is of."""
    return tasks.get(config.task.name)


def world_of(config: Config) -> Any:
    """What the config's task draws anew each episode."""
    return getattr(config.task, task_of(config).world)
