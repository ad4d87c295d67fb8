"""An environment as anybody might write one: rsl_rl's VecEnv and nothing beyond it."""

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict


class PointMass(VecEnv):
    """N points on a plane, pushed about, each looking for a goal of its own."""

    max_episode_length = 100
    num_actions = 2
    device = "cpu"
    cfg: dict = {}  # noqa: RUF012

    def __init__(self, num_envs=16, seed=0):
        self.num_envs = num_envs
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self._generator = torch.Generator().manual_seed(seed)
        self._position, self._velocity, self._goal = (torch.zeros(num_envs, 2) for _ in range(3))
        self._reset(torch.ones(num_envs, dtype=torch.bool))

    def get_observations(self):
        values = [self._position, self._velocity, self._goal - self._position]
        return TensorDict({"policy": torch.cat(values, -1)}, batch_size=[self.num_envs])

    def step(self, actions):
        self._velocity = 0.5 * self._velocity + 0.5 * actions.nan_to_num(0.0, 0.0, 0.0).clamp(-1, 1)
        self._position = self._position + 0.1 * self._velocity
        self.episode_length_buf = self.episode_length_buf + 1
        distance = (self._goal - self._position).norm(dim=-1)
        out = self._position.abs().amax(-1) > 2.0
        time_out = (self.episode_length_buf >= self.max_episode_length) & ~out
        done = out | time_out
        self._reset(done)
        return self.get_observations(), -distance - 5.0 * out, done, self._extras(time_out)

    def _extras(self, time_out):
        return {"time_outs": time_out}

    def _reset(self, mask):
        drawn = 2 * torch.rand(2, self.num_envs, 2, generator=self._generator) - 1
        self._position = torch.where(mask[:, None], drawn[0], self._position)
        self._velocity = torch.where(mask[:, None], 0.0, self._velocity)
        self._goal = torch.where(mask[:, None], drawn[1], self._goal)
        self.episode_length_buf = torch.where(mask, 0, self.episode_length_buf)


class Unseeded(PointMass):
    """Takes no seed."""

    def __init__(self, num_envs=16):
        super().__init__(num_envs)


class SaysNothingOfTime(PointMass):
    """Time-outs are failures to whoever learns here."""

    def _extras(self, time_out):
        return {}


class LateReward(PointMass):
    """The reward of the step before."""

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        late = getattr(self, "_late", torch.zeros_like(reward))
        self._late = torch.where(done, 0.0, reward)
        return observation, late, done, extras


class OneStartForAll(PointMass):
    """One draw of everything, for every room."""

    def _reset(self, mask):
        super()._reset(mask)
        drawn = 2 * torch.rand(2, 1, 2, generator=self._generator) - 1
        self._position = torch.where(mask[:, None], drawn[0], self._position)
        self._goal = torch.where(mask[:, None], drawn[1], self._goal)


class Raises(PointMass):
    """Fails on its first step."""

    def step(self, actions):
        raise RuntimeError("no such joint")


class RaisesOnReset(PointMass):
    """Fails when its first episode ends."""

    def _reset(self, mask):
        super()._reset(mask)
        if mask.any() and not mask.all():
            raise KeyError("goal")


class OnlyOne(PointMass):
    """Can't be made twice."""

    made = False

    def __init__(self, num_envs=16, seed=0):
        if type(self).made:
            raise RuntimeError("the simulator is running already")
        type(self).made = True
        super().__init__(num_envs, seed)


class NoExtras(PointMass):
    """An older interface."""

    def step(self, actions):
        return super().step(actions)[:3]


class OddTerms(PointMass):
    """Tells of its terms in words of its own."""

    def terms(self):
        return {"policy": ["position", "velocity", "goal"]}


class NoLimit(PointMass):
    """Says nothing of its time limit."""

    def __getattribute__(self, name):
        if name == "max_episode_length":
            raise AttributeError(name)
        return super().__getattribute__(name)


class Needy(PointMass):
    """Needs more than anybody offers."""

    def __init__(self, num_envs, gravity):
        super().__init__(num_envs)
