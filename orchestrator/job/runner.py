"""The training loop: rollout, update, evaluation, curves, checkpoint."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rsl_rl.extensions import RandomNetworkDistillation
from rsl_rl.models import MLPModel
from tensordict import TensorDict

from navtask.evaluation import Estimate, Evaluator
from navtask.physics import resolve_backend
from navtask.replay import Replay
from orchestrator.config import Config, PolicyConfig, task_of
from orchestrator.errors import UserError
from orchestrator.job import checkpoint
from orchestrator.job.curves import Curves
from orchestrator.job.distributed import Processes
from orchestrator.job.ppo import PPO
from orchestrator.job.spec import EVALUATIONS, write_aside

REPLAYS = 6
"""Episodes of the final evaluation that are kept to look at."""


class Diverged(Exception):
    """The loss, or the state, is not finite any more."""


class Runner:
    """One training as a function of config and seed; all its state goes into a checkpoint and comes back bit for bit.

    ``threads`` drive the physics of a CPU engine; the result doesn't depend on them. Several ``processes`` train
    together, each with its share of the rooms that one alone would have.
    """

    def __init__(self, config: Config, *, seed: int, folder: Path, threads: int, processes: Processes | None = None):
        self.config = config
        self.folder = folder
        self._processes = processes or Processes(device=config.device)
        self._device = self._processes.device
        self._on_gpu = self._device.startswith("cuda")
        self._backend = resolve_backend(config.physics.backend, self._device)
        self._threads = threads
        torch.manual_seed(seed)
        rnd = config.algorithm.rnd
        groups = [*config.policy.obs_groups.values(), *([rnd.obs_groups] if rnd else [])]
        self._privileged = any("privileged" in names for names in groups)
        num_envs = self._processes.share(config.num_envs)
        self.task = task_of(config)
        self.env = self.task.make_env(
            config.task,
            num_envs=num_envs,
            first_room=self._processes.rank * num_envs,
            seed=seed,
            device=self._device,
            backend=self._backend,
            threads=threads,
            privileged=self._privileged,
        )
        self.env.cuda_graph &= config.physics.cuda_graph
        how = "one CUDA graph a step" if self.env.cuda_graph else "no CUDA graph"
        print(f"physics: {self._backend} on {self._device}, {how}", flush=True)
        self.env.spread_ages()
        self.algorithm = self._build_algorithm()
        if not self._processes.main:
            torch.manual_seed(self._processes.seed(seed))
        self._evaluators: dict[str, Evaluator] = {}
        self._replays: list[Replay] | None = None
        self.iteration = 0
        self.train_seconds = 0.0
        """Of rollouts and updates; evaluations are not counted."""
        self.evaluations: list[dict[str, float]] = []
        """One for each evaluation on the run's own set: ``step`` and every metric."""
        self.rooms: list[dict[str, torch.Tensor]] = []
        """And the same by room: every metric (rooms,) float32, nan where a room has none."""
        self.kl: list[torch.Tensor] = []
        self.learning_rate: list[torch.Tensor] = []
        """One tensor an iteration, one value a mini-batch."""

    def _build_algorithm(self) -> PPO:
        algorithm, policy = self.config.algorithm, self.config.policy
        settings = {
            "algorithm": {
                "class_name": "orchestrator.job.ppo:PPO",
                "num_learning_epochs": algorithm.num_learning_epochs,
                "num_mini_batches": algorithm.num_mini_batches,
                "learning_rate": algorithm.learning_rate,
                "schedule": algorithm.schedule,
                "desired_kl": algorithm.desired_kl,
                "desired_kl_end": algorithm.desired_kl_end,
                "clip_param": algorithm.clip_param,
                "gamma": algorithm.gamma,
                "lam": algorithm.lam,
                "entropy_coef": algorithm.entropy_coef,
                "value_loss_coef": algorithm.value_loss_coef,
                "max_grad_norm": algorithm.max_grad_norm,
                "use_clipped_value_loss": algorithm.use_clipped_value_loss,
                "bootstrap": algorithm.bootstrap,
                "symmetry": algorithm.symmetry,
                "mirror_loss_coeff": algorithm.mirror_loss_coeff,
                "mirror_maps": self.env.mirror_maps() if self.task.symmetric else None,
                "rnd": self._build_rnd(),
                "threads": self._threads,
            },
            "actor": {"class_name": "MLPModel", **_network(policy), "distribution_cfg": _distribution(policy)},
            "critic": {"class_name": "MLPModel", **_network(policy)},
            "obs_groups": {name: list(groups) for name, groups in policy.obs_groups.items()},
            "num_steps_per_env": algorithm.num_steps_per_env,
            "multi_gpu": self._processes.multi_gpu_cfg,
        }
        built = PPO.construct_algorithm(self.env.get_observations(), self.env, settings, self._device)
        assert isinstance(built, PPO)
        _initialise(built.actor, last_gain=0.01)
        _initialise(built.critic, last_gain=1.0)
        return built

    def _build_rnd(self) -> RandomNetworkDistillation | None:
        rnd = self.config.algorithm.rnd
        if rnd is None:
            return None
        observation = self.env.get_observations()
        return RandomNetworkDistillation(
            num_states=sum(observation[group].shape[-1] for group in rnd.obs_groups),
            obs_groups={"rnd_state": list(rnd.obs_groups)},
            num_outputs=rnd.num_outputs,
            predictor_hidden_dims=list(rnd.hidden_dims),
            target_hidden_dims=list(rnd.hidden_dims),
            activation=self.config.policy.activation,
            state_normalization=True,
            weight=rnd.weight * self.env.reward_scale,  # as the task scales its own rewards
            learning_rate=rnd.learning_rate,
            device=self._device,
        )

    # -- the loop ---------------------------------------------------------------------------------------------------

    def train(self, curves: Curves | None, stop: Callable[[], bool]) -> bool:
        """Train to the configured number of iterations; ``curves`` are the main process's to write.

        Returns False when ``stop()`` ended it before, with a checkpoint written. Raises Diverged, after writing the
        curves of the iteration. Of several processes all must come to the same: ``stop()`` must say the same in each.
        """
        total, every = self.config.algorithm.iterations, self.config.algorithm.checkpoint_every
        observation = self.env.get_observations()
        if self._processes.multi_gpu_cfg:
            self.algorithm.broadcast_parameters()  # equal seeds make equal networks only on equal devices
        self.algorithm.train_mode()
        while self.iteration < total:
            started = time.perf_counter()
            with torch.inference_mode():
                for _ in range(self.config.algorithm.num_steps_per_env):
                    actions = self.algorithm.act(observation)
                    observation, rewards, dones, extras = self.env.step(actions)
                    self.algorithm.process_env_step(observation, rewards, dones, extras)
                self.algorithm.compute_returns(observation)
            collected = time.perf_counter()
            self.algorithm.anneal(self.iteration / total)
            metrics = self.algorithm.update()
            learned = time.perf_counter()
            self.iteration += 1
            self.train_seconds += learned - started
            metrics |= self._iteration_metrics(collected - started, learned - collected)

            broken = sorted(name for name, value in metrics.items() if not math.isfinite(value))
            last = self.iteration == total
            due = last or self.iteration % self.config.evaluation.every == 0
            if due and not broken and self._processes.main:
                metrics |= self.evaluate(final=last)
            if curves is not None:
                curves.write(self.iteration, metrics)
            if broken:
                raise Diverged(f"{', '.join(broken[:3])} not finite at iteration {self.iteration}")
            stopping = stop() and not last
            if last or stopping or self.iteration % every == 0:
                self.save()
            if stopping:
                return False
        return True

    def _iteration_metrics(self, collection: float, learning: float) -> dict[str, float]:
        trace = self.algorithm.trace
        assert trace is not None
        self.kl.append(trace.kl)
        self.learning_rate.append(trace.learning_rate)
        steps = self.config.num_envs * self.config.algorithm.num_steps_per_env
        metrics = {
            **self.env.pop_statistics(self._processes.sum),
            "Train/env_steps": float(self.iteration * steps),
            "Policy/mean_std": self._processes.mean(self.algorithm.get_policy().output_std.mean().item()),
            "Perf/total_fps": steps / (collection + learning),
            "Perf/collection_time": collection,
            "Perf/learning_time": learning,
        }
        if self.algorithm.rnd:  # a step, unscaled, as returns are
            intrinsic = self._processes.mean(self.algorithm.intrinsic_rewards.mean().item())
            metrics["Train/intrinsic_reward"] = intrinsic / self.env.reward_scale
        return metrics

    # -- evaluation -------------------------------------------------------------------------------------------------

    def evaluator(self, name: str) -> Evaluator:
        """The evaluator of a frozen set; its rooms are drawn once."""
        if name not in self._evaluators:
            self._evaluators[name] = self.task.make_evaluator(
                self.config.task,
                self.config.evaluation.frozen[name],
                self.config.evaluation.num_rooms,
                device=self._device,
                backend=self._backend,
                threads=self._threads,
                privileged=self._privileged,
            )
            self._evaluators[name].env.cuda_graph &= self.config.physics.cuda_graph
        return self._evaluators[name]

    def evaluate(self, *, final: bool) -> dict[str, float]:
        """Metrics of the deterministic policy on the run's own frozen set; the final evaluation adds the bounds of the
        95 % intervals and the further sets. Metrics that are not defined (no success, no time to goal) are absent."""
        own = self.config.evaluation.set
        rooms = self.measure(own, film=final)
        results = self.evaluator(own).estimates(rooms)
        self.rooms.append({metric: values.float() for metric, values in rooms.items()})
        metrics = _flatten("Eval", results, bounds=final)
        self.evaluations.append({"step": float(self.iteration), **_flatten("Eval", results, bounds=False)})
        if final:
            for name in self.config.evaluation.further_sets:
                metrics |= _flatten(f"Eval_{name}", self.evaluator(name).estimates(self.measure(name)), bounds=True)
        self._write_evaluations()
        rates = ", ".join(f"{rate} {results[rate].value:.3f}" for rate in self.task.metrics if rate.endswith("_rate"))
        print(f"iteration {self.iteration}: {rates} on '{own}', {self.train_seconds:.1f} s of training", flush=True)
        return metrics

    def _write_evaluations(self) -> None:
        """``eval.json``: on which rooms, and what came out so far; a run that is stopped early has it, too."""
        sets = {
            name: {
                "set_hash": evaluator.set_hash,
                "rooms": self.config.evaluation.num_rooms,
                "unreachable_share": evaluator.unreachable_share,
            }
            for name, evaluator in self._evaluators.items()
        }
        told = {"sets": sets, "evaluations": self.evaluations}
        write_aside(self.folder / EVALUATIONS, json.dumps(told, indent=1) + "\n")

    def measure(self, name: str, *, film: bool = False) -> dict[str, torch.Tensor]:
        """Every metric of the deterministic policy in each room of a frozen set; see ``Evaluator.run``. ``film`` keeps
        some episodes to look at."""
        evaluator = self.evaluator(name)
        policy: MLPModel = self.algorithm.get_policy()
        self.algorithm.eval_mode()
        with torch.inference_mode():
            if film:
                instants: list[torch.Tensor] = []
                rooms = evaluator.run(policy, lambda: instants.append(evaluator.configuration().cpu().clone()))
                self._replays = evaluator.replays(rooms, torch.stack(instants), REPLAYS)
            else:
                rooms = evaluator.run(policy)
        self.algorithm.train_mode()
        return rooms

    def replays(self) -> list[Replay]:
        """Some episodes of the final evaluation to look at, good and failed ones."""
        if self._replays is None:  # gone on with after it
            self.measure(self.config.evaluation.set, film=True)
        assert self._replays is not None
        return self._replays

    # -- exact resumption -------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of everything that the next iteration depends on, in all processes."""
        environments = self._processes.gather(self.env.state())
        generators = self._processes.gather(torch.get_rng_state())
        on_gpu = self._processes.gather(torch.cuda.get_rng_state(self._device) if self._on_gpu else None)
        if not self._processes.main:
            return
        checkpoint.save(
            self.folder,
            self.iteration,
            {
                "algorithm": self.algorithm.save(),
                "env": environments,
                "random": generators,
                "random_gpu": on_gpu,
                "train_seconds": self.train_seconds,
                "evaluations": self.evaluations,
                "rooms": self.rooms,
                "kl": self.kl,
                "learning_rate": self.learning_rate,
            },
        )

    def resume(self) -> bool:
        """Go on from the newest checkpoint in the folder; False when there is none.

        Raises UserError where another number of processes wrote it: rooms and random numbers are each process's own.
        """
        state = checkpoint.latest(self.folder)
        if state is None:
            return False
        wrote, now = len(state["env"]), self._processes.world_size
        if wrote != now:
            raise UserError(f"{self.folder}: its checkpoint is of {wrote} processes, not {now}; go on with as many")
        self.algorithm.load(state["algorithm"], None, strict=True)
        self.env.load(state["env"][self._processes.rank])
        torch.set_rng_state(state["random"][self._processes.rank])
        if self._on_gpu:  # actions and mini-batches are drawn there
            torch.cuda.set_rng_state(state["random_gpu"][self._processes.rank], self._device)
        self.iteration = state["iteration"]
        self.train_seconds = state["train_seconds"]
        self.evaluations, self.rooms = state["evaluations"], state["rooms"]
        self.kl, self.learning_rate = state["kl"], state["learning_rate"]
        return True


def build_actor(policy: PolicyConfig, observation: TensorDict, num_actions: int) -> MLPModel:
    """The actor of such a policy, for a checkpoint's ``actor_state_dict``; ``observation`` tells the groups' widths."""
    groups = {"actor": list(policy.obs_groups["actor"])}
    distribution = _distribution(policy)
    return MLPModel(observation, groups, "actor", num_actions, **_network(policy), distribution_cfg=distribution)


def _network(policy: PolicyConfig) -> dict[str, Any]:
    return {
        "hidden_dims": list(policy.hidden_dims),
        "activation": policy.activation,
        "obs_normalization": policy.obs_normalization,
    }


def _distribution(policy: PolicyConfig) -> dict[str, Any]:
    if policy.distribution == "BetaDistribution":
        return {"class_name": policy.distribution, "action_range": (-1.0, 1.0)}
    faster = {"GaussianDistribution": "orchestrator.job.gaussian:Gaussian"}
    return {"class_name": faster.get(policy.distribution, policy.distribution), "init_std": policy.init_std}


def _initialise(network: MLPModel, last_gain: float) -> None:
    """Orthogonal weights, and a first policy that hardly moves (Andrychowicz et al. 2021, arXiv:2006.05990)."""
    layers = [layer for layer in network.mlp if isinstance(layer, torch.nn.Linear)]
    for layer in layers:
        torch.nn.init.orthogonal_(layer.weight, last_gain if layer is layers[-1] else math.sqrt(2.0))
        torch.nn.init.zeros_(layer.bias)
    if network.distribution is not None:
        network.distribution.init_mlp_weights(network.mlp)  # its own, where the spread comes from the network too


def _flatten(prefix: str, results: dict[str, Estimate], *, bounds: bool) -> dict[str, float]:
    metrics = {}
    for name, estimate in results.items():
        if math.isfinite(estimate.value):
            metrics[f"{prefix}/{name}"] = estimate.value
            if bounds and math.isfinite(estimate.low):
                metrics[f"{prefix}/{name}_low"] = estimate.low
                metrics[f"{prefix}/{name}_high"] = estimate.high
    return metrics
