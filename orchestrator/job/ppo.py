"""PPO as rsl_rl has it, made traceable and faster; the mathematics is unchanged.

What differs from the parent class: the KL divergence is measured under both schedules and in every mini-batch; a
time-out is bootstrapped with the value of the state it ended in; and what does not change within an update (the order
of samples, normalised observations, mirror images, RND's targets) is computed once instead of in every mini-batch, with
no host synchronisation in the loop. Likewise values and log-probabilities of a rollout are computed at its end, in one
batch. Several processes that train together (``multi_gpu_cfg``) agree on more than gradients and KL: advantages are
normalised over the samples of all, as one process with all the rooms would.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from rsl_rl.algorithms import PPO as RslPPO
from rsl_rl.extensions import RandomNetworkDistillation
from rsl_rl.models import MLPModel
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict
from torch import nn

from orchestrator.job.schedule import LEARNING_RATE_MAX, LEARNING_RATE_MIN

MirrorMaps = dict[str, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Trace:
    """One value for each mini-batch of one update, each (epochs * mini-batches,)."""

    kl: torch.Tensor
    """Mean KL(old || new) before the gradient step."""
    learning_rate: torch.Tensor
    """Used in the gradient step."""


class PPO(RslPPO):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) with two perceptrons.

    ``bootstrap`` is ``final_obs`` (V of the observation a time-out ended in) or ``current`` (V of the one before, as in
    rsl_rl). ``symmetry`` is ``none``, ``augmentation`` (learn from every sample and from its mirror image),
    ``mirror_loss`` or ``both``; ``mirror_maps`` says how the task mirrors. ``rnd`` adds a reward for what is new (Burda
    et al. 2018, arXiv:1810.12894) to the returns that are learned from, and to nothing else. It is paid for the state
    that a step led to, so with ``final_obs`` for the one an episode ended in; rsl_rl, and ``current``, pay for the
    first state of the next episode there.
    """

    def __init__(
        self,
        actor: MLPModel,
        critic: MLPModel,
        storage: RolloutStorage,
        *,
        desired_kl_end: float | None = None,
        bootstrap: str = "final_obs",
        symmetry: str = "none",
        mirror_loss_coeff: float = 0.0,
        mirror_maps: MirrorMaps | None = None,
        rnd: RandomNetworkDistillation | None = None,
        threads: int = 1,
        **kwargs: Any,
    ):
        super().__init__(actor, critic, storage, **kwargs)
        self.rnd = rnd
        self.intrinsic_rewards = torch.zeros(storage.num_transitions_per_env, storage.num_envs, device=self.device)
        """(T, N) what ``rnd`` paid in the last rollout, weighted."""
        self._kl_start = float(kwargs["desired_kl"])
        self._kl_end = self._kl_start if desired_kl_end is None else desired_kl_end
        self._bootstrap_final = bootstrap == "final_obs"
        self._augment = symmetry in ("augmentation", "both")
        self._mirror_loss_coeff = mirror_loss_coeff if symmetry in ("mirror_loss", "both") else 0.0
        self._mirror_maps = mirror_maps or {}
        # What both networks see alike is normalised and gathered once.
        self._same_inputs = self.actor.obs_groups == self.critic.obs_groups
        # Actor and critic share nothing but the learning rate: with a second core, one is computed beside the other,
        # with the same result to the last bit. What the other thread gets are few long calls that leave the
        # interpreter alone; where both need it all the time, handing it over costs more than is gained.
        self._aside = ThreadPoolExecutor(1, "aside", torch.set_num_threads, (1,)) if threads > 1 else None
        self._time_outs = torch.zeros(storage.num_transitions_per_env, storage.num_envs, device=self.device)
        self._stored: dict[str, torch.Tensor] = {
            group: storage.observations[group] for group in list(storage.observations.keys())
        }
        """Observations of the rollout in hand, (T, N, width), by group: views into the storage."""
        self._inputs: dict[str, torch.Tensor] = {}
        """Of the rollout in hand: normalised observations of ``actor`` and ``critic``, (T N, width)."""
        # One kernel for all parameters; the learning rate is a tensor, so that changing it costs no synchronisation.
        self._lr = torch.tensor(float(kwargs["learning_rate"]), device=self.device)
        self.optimizer = torch.optim.Adam(
            [*self.actor.parameters(), *self.critic.parameters()], lr=self._lr, fused=True
        )
        self.trace: Trace | None = None
        """Of the last update."""

    def anneal(self, progress: float) -> None:
        """Set the desired KL for a share ``progress`` in [0, 1] of the training."""
        self.desired_kl = self._kl_start + progress * (self._kl_end - self._kl_start)

    def act(self, obs: TensorDict) -> torch.Tensor:
        """Sample actions (N, A) for observations; what else a transition needs is computed at the rollout's end."""
        self.transition.observations = obs
        self.transition.actions = self.actor(obs, stochastic_output=True)
        return self.transition.actions

    def process_env_step(
        self, obs: TensorDict, rewards: torch.Tensor, dones: torch.Tensor, extras: dict[str, Any]
    ) -> None:
        """Record one environment step, with what a time-out would have gone on to earn."""
        st, time_outs = self.storage, extras["time_outs"]
        if self.rnd:
            reached = extras["final_obs"] if self._bootstrap_final else obs
            self.intrinsic_rewards[st.step] = self.rnd.get_intrinsic_reward(reached)
            rewards = rewards + self.intrinsic_rewards[st.step]
        if self._bootstrap_final:
            # r += gamma V(s_final) where the time limit alone cut the episode (Pardo et al. 2018, arXiv:1712.00378).
            # A CPU can look where that is; a GPU would have to wait for the answer.
            if self.device != "cpu":
                rewards = rewards + self.gamma * self.critic(extras["final_obs"]).squeeze(-1) * time_outs
            elif len(cut := time_outs.nonzero().squeeze(-1)):
                rewards = rewards.index_add(0, cut, self.gamma * self.critic(extras["final_obs"][cut]).squeeze(-1))
        else:
            self._time_outs[st.step] = time_outs
        for group, stored in self._stored.items():
            stored[st.step] = self.transition.observations[group]
        st.actions[st.step].copy_(self.transition.actions)
        st.rewards[st.step].copy_(rewards.unsqueeze(-1))
        st.dones[st.step].copy_(dones.unsqueeze(-1))
        st.step += 1
        self.transition.clear()

    def compute_returns(self, obs: TensorDict) -> None:
        """Values, log-probabilities and returns of the whole rollout; ``obs`` follow its last step."""
        st, policy = self.storage, self.actor.distribution
        assert policy is not None
        with torch.inference_mode(False), torch.no_grad():
            flat = st.observations.flatten(0, 1)
            for name, model in (("actor", self.actor), ("critic", self.critic)):
                if name == "critic" and self._same_inputs:
                    self._inputs[name] = self._inputs["actor"]
                else:
                    groups = torch.cat([flat[group] for group in model.obs_groups], dim=-1)
                    self._inputs[name] = model.obs_normalizer(groups)
            st.values = self.critic.mlp(self._inputs["critic"]).view_as(st.values)
            policy.update(self.actor.mlp(self._inputs["actor"]))
            st.actions_log_prob = policy.log_prob(st.actions.flatten(0, 1)).view_as(st.actions_log_prob)
            shape = st.actions.shape[:2]
            st.distribution_params = tuple(p.unflatten(0, shape) for p in policy.params)
            if not self._bootstrap_final:
                st.rewards += self.gamma * st.values * self._time_outs.unsqueeze(-1)
            super().compute_returns(obs)
            if self.is_multi_gpu:
                advantages = st.returns - st.values
                mean, variance = self._moments(advantages)
                st.advantages = (advantages - mean) / (variance.sqrt() + 1e-8)

    def _moments(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and unbiased variance of ``x``, over the samples of all processes."""
        if not self.is_multi_gpu:
            return x.mean(), x.var()
        mean = self._mean_over_processes(x.mean())
        n = x.numel() * self.gpu_world_size
        return mean, self._mean_over_processes((x - mean).square().mean()) * (n / (n - 1))

    def _mean_over_processes(self, x: torch.Tensor) -> torch.Tensor:
        """``x``, averaged in place over all processes; each has as many samples."""
        if self.is_multi_gpu:
            torch.distributed.all_reduce(x)
            x /= self.gpu_world_size
        return x

    def update(self) -> dict[str, float]:
        """Run the epochs over the stored rollout; returns every scalar of the update by its metric name."""
        st = self.storage
        size = st.num_envs * st.num_transitions_per_env // self.num_mini_batches
        with torch.no_grad():
            # One order serves all epochs, as in rsl_rl's own generator.
            order = torch.randperm(self.num_mini_batches * size, device=self.device)
            flat = st.observations.flatten(0, 1)
            batches = self._gather(flat, order, size)
            (_, value_error), (_, spread) = self._moments(st.returns - st.values), self._moments(st.returns)
            explained_variance = 1.0 - value_error / spread.clamp(min=1e-12)

        kls, rates, sums = [], [], torch.zeros(8, device=self.device)
        for epoch in range(self.num_learning_epochs):
            for batch in batches[epoch % len(batches)]:
                stats, kl = self._learn(batch)
                kls.append(kl)
                rates.append(self._lr.clone())
                sums += stats
        # Of several processes each learns from the samples of all: rsl_rl merges counts, means and variances here, so
        # that normalisers don't drift apart.
        self.actor.update_normalization(flat)
        if self._same_inputs and self.actor.obs_normalization and self.critic.obs_normalization:
            self.critic.obs_normalizer.load_state_dict(self.actor.obs_normalizer.state_dict())
        else:
            self.critic.update_normalization(flat)
        if self.rnd:
            self.rnd.update_normalization(flat)
        st.clear()

        self.trace = Trace(torch.stack(kls).cpu(), torch.stack(rates).cpu())
        self.learning_rate = float(self._lr)
        names = [
            "value",
            "rnd",
            "surrogate",
            "entropy",
            "clip_fraction",
            "mirror",
            "grad_norm_actor",
            "grad_norm_critic",
        ]
        means = [*(self._mean_over_processes(sums) / len(kls))]
        if self.actor.obs_normalization:
            names += ["obs_mean_abs", "obs_std_shift"]
            means += [self.actor.obs_normalizer.mean.abs().mean(), (self.actor.obs_normalizer.std - 1.0).abs().mean()]
        mean = dict(zip(names, torch.stack(means).tolist(), strict=True))
        kl, rate = self.trace.kl, self.trace.learning_rate
        scalars = {
            "Loss/value": mean["value"],
            "Loss/surrogate": mean["surrogate"],
            "Loss/entropy": mean["entropy"],
            "Loss/learning_rate": self.learning_rate,
            "PPO/kl_mean": kl.mean().item(),
            "PPO/kl_max": kl.max().item(),
            "PPO/kl_first": kl[0].item(),
            "PPO/kl_overshoot": (kl > 2.0 * self.desired_kl).float().mean().item(),
            "PPO/clip_fraction": mean["clip_fraction"],
            "PPO/explained_variance": explained_variance.item(),
            "PPO/grad_norm_actor": mean["grad_norm_actor"],
            "PPO/grad_norm_critic": mean["grad_norm_critic"],
            "PPO/learning_rate_min": rate.min().item(),
            "PPO/learning_rate_max": rate.max().item(),
        }
        if self._mirror_loss_coeff:
            scalars["Loss/mirror"] = mean["mirror"]
        if self.rnd:
            scalars["Loss/rnd"] = mean["rnd"]
        if self.actor.obs_normalization:  # both stay 0 where the normaliser has never learned anything
            scalars |= {f"Policy/{name}": mean[name] for name in ("obs_mean_abs", "obs_std_shift")}
        return scalars

    def _gather(self, flat: TensorDict, order: torch.Tensor, size: int) -> list[list[dict[str, Any]]]:
        """The mini-batches of an epoch, each gathered, normalised and mirrored once.

        With augmentation there are two kinds of epoch, which take turns: in the first, the second half of every
        mini-batch is replaced by its mirror images, in the other the first half. So original and image of every sample
        are learned from equally often, in batches no larger than without.
        """
        st = self.storage
        mirrored = self._augment or self._mirror_loss_coeff > 0

        def shuffled(stored: torch.Tensor) -> torch.Tensor:
            return stored.flatten(0, 1).index_select(0, order)  # on a CPU twice as fast as [order]

        samples = {
            "actions": shuffled(st.actions),
            "log_prob": shuffled(st.actions_log_prob).squeeze(-1),
            "advantages": shuffled(st.advantages).squeeze(-1),
            "values": shuffled(st.values),
            "returns": shuffled(st.returns),
        }
        # A mirror image is as likely, as good and as valuable as its original: only inputs and actions differ.
        images = {"actions": self._mirror("actions", samples["actions"])} if mirrored else {}
        for name, model in (("actor", self.actor), ("critic", self.critic)):
            if name == "critic" and self._same_inputs:
                samples[name] = samples["actor"]
                if mirrored:
                    images[name] = images["actor"]
                continue
            samples[name] = self._inputs[name].index_select(0, order)
            if mirrored:
                turned = [self._mirror(group, shuffled(st.observations[group])) for group in model.obs_groups]
                images[name] = model.obs_normalizer(torch.cat(turned, dim=-1))
        old_params = [shuffled(p) for p in st.distribution_params]
        # The predictor learns from originals alone: a mirror image is not a state that was visited.
        visited: dict[str, torch.Tensor] = {}
        if self.rnd:
            visited["rnd_state"] = self.rnd.state_normalizer(self.rnd.get_rnd_state(flat)[order])
            visited["rnd_target"] = self.rnd.target(visited["rnd_state"])

        def batch(start: int, originals: slice, replaced: slice) -> dict[str, Any]:
            parts: tuple[slice, ...] = (slice(start + originals.start, start + originals.stop),)
            if self._augment:
                parts += (slice(start + replaced.start, start + replaced.stop),)
            sources = (samples, samples | images)
            result: dict[str, Any] = {
                name: torch.cat([source[name][part] for source, part in zip(sources, parts, strict=False)])
                for name in samples
            }
            result["old_params"] = tuple(p[parts[0]] for p in old_params)
            if self._mirror_loss_coeff:
                result["actor_image"] = images["actor"][parts[0]]
            return result | {name: x[start : start + size] for name, x in visited.items()}

        starts = range(0, len(order), size)
        if not self._augment:
            return [[batch(start, slice(0, size), slice(0, 0)) for start in starts]]
        first, second = slice(0, size // 2), slice(size // 2, size)
        return [[batch(start, *halves) for start in starts] for halves in ((first, second), (second, first))]

    def _mirror(self, what: str, x: torch.Tensor) -> torch.Tensor:
        index, sign = self._mirror_maps[what]
        return x.index_select(-1, index) * sign

    def _learn(self, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """One gradient step; returns the step's statistics, in ``update``'s order, and the KL before it."""
        self.optimizer.zero_grad()
        actor_loss, actor_stats, kl = self._actor_loss(batch)
        actor_done = self._aside.submit(actor_loss.backward) if self._aside else None
        value_loss = self._value_loss(batch)
        (self.value_loss_coef * value_loss).backward()
        rnd_loss = self._rnd_gradients(batch)
        if actor_done:
            actor_done.result()
        else:
            actor_loss.backward()
        if self.is_multi_gpu:
            self.reduce_parameters()
        norms = [nn.utils.clip_grad_norm_(net.parameters(), self.max_grad_norm) for net in (self.actor, self.critic)]
        self.optimizer.step()
        if self.rnd:
            self.rnd.optimizer.step()
        return torch.stack([value_loss.detach(), rnd_loss, *actor_stats, *norms]), kl

    def _rnd_gradients(self, batch: dict[str, Any]) -> torch.Tensor:
        """Compute the predictor's gradients, where there is one; returns its loss."""
        if not self.rnd:
            return torch.zeros((), device=self.device)
        self.rnd.optimizer.zero_grad()
        # |f(s) - f*(s)|^2: the predictor f learns what the fixed random network f* says of states that were visited.
        loss = nn.functional.mse_loss(self.rnd.predictor(batch["rnd_state"]), batch["rnd_target"])
        loss.backward()
        return loss.detach()

    def _value_loss(self, batch: dict[str, Any]) -> torch.Tensor:
        values = self.critic.mlp(batch["critic"])
        value_loss = (values - batch["returns"]).square()
        if self.use_clipped_value_loss:
            near = batch["values"] + (values - batch["values"]).clamp(-self.clip_param, self.clip_param)
            value_loss = torch.max(value_loss, (near - batch["returns"]).square())
        return value_loss.mean()

    def _actor_loss(self, batch: dict[str, Any]) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
        """Adapt the learning rate; returns the loss, of this surrogate, entropy, clip fraction and mirror loss, and the
        KL."""
        policy = self.actor.distribution
        assert policy is not None
        policy.update(self.actor.mlp(batch["actor"]))
        log_prob = policy.log_prob(batch["actions"])
        # The originals alone, which come first, count for the KL: what the old policy made of an image is not known.
        originals = len(batch["old_params"][0])
        params = tuple(p[:originals] for p in policy.params)
        entropy = policy.entropy.mean()
        with torch.no_grad():
            kl = self._mean_over_processes(policy.kl_divergence(batch["old_params"], params).mean())
            if self.schedule == "adaptive":
                self._adapt(kl)

        # L_clip = -min(A r, A clip(r, 1 - eps, 1 + eps)),  r = pi_new / pi_old
        ratio = torch.exp(log_prob - batch["log_prob"])
        advantages = batch["advantages"]
        clipped = ratio.clamp(1.0 - self.clip_param, 1.0 + self.clip_param)
        surrogate = torch.max(-advantages * ratio, -advantages * clipped).mean()
        loss = surrogate - self.entropy_coef * entropy
        mirror_loss = torch.zeros((), device=self.device)
        if self._mirror_loss_coeff:
            # |mu(M s) - M mu(s)|^2 (Mittal et al. 2024); the target is not learned from.
            mean = policy.deterministic_output(self.actor.mlp(batch["actor"][:originals]))
            image = policy.deterministic_output(self.actor.mlp(batch["actor_image"]))
            mirror_loss = nn.functional.mse_loss(image, self._mirror("actions", mean).detach())
            loss = loss + self._mirror_loss_coeff * mirror_loss
        clip_fraction = (ratio != clipped).float().mean()
        return loss, [surrogate.detach(), entropy.detach(), clip_fraction, mirror_loss.detach()], kl

    def _adapt(self, kl: torch.Tensor) -> None:
        """lr / 1.5 above twice the desired KL, lr * 1.5 below half of it, within bounds."""
        lower = (self._lr / 1.5).clamp(min=LEARNING_RATE_MIN)
        higher = (self._lr * 1.5).clamp(max=LEARNING_RATE_MAX)
        timid = (kl < self.desired_kl / 2.0) & (kl > 0.0)
        self._lr.copy_(torch.where(kl > self.desired_kl * 2.0, lower, torch.where(timid, higher, self._lr)))

    def load(self, loaded_dict: dict, load_cfg: dict | None, strict: bool) -> bool:
        """Load models and optimiser; the learning rate goes on where it was."""
        result = super().load(loaded_dict, load_cfg, strict)
        for group in self.optimizer.param_groups:
            self._lr.copy_(torch.as_tensor(group["lr"]))
            group["lr"] = self._lr
        self.learning_rate = float(self._lr)
        return result
