"""Every task under one name, for what they all have in common."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from navsetup import load_nav
from reachsetup import load_reach

from navtask import tasks
from navtask.contract import VecTask


def _nav(**changes):
    config = load_nav(**changes)
    config.observations["action_prev"].enabled = True
    config.lidar.noise_std = 0.02
    return config


def _reach(**changes):
    # Random commands seldom bring a tool within two centimetres.
    config = load_reach(goal_radius=0.12, **changes)
    config.observations["action_prev"].enabled = True
    config.rewards["action_smooth"].weight = -0.01
    return config


@dataclass(frozen=True)
class Case:
    """A task in which random actions lead to more than one end."""

    name: str
    load: Callable[..., Any]

    @property
    def definition(self) -> tasks.TaskDefinition:
        return tasks.get(self.name)

    def config(self, steps: int | None = None) -> Any:
        """Its settings, with episodes of so many control steps."""
        config = self.load()
        return config if steps is None else replace(config, episode_length=steps * config.control_dt)

    def make(self, config: Any = None, num_envs: int = 8, **settings: Any) -> VecTask:
        """With seed 0 and all observation groups, unless told otherwise."""
        given = {"seed": 0, "privileged": "privileged" in self.definition.groups, **settings}
        return self.definition.make_env(config or self.config(), num_envs=num_envs, **given)


CASES = [Case("nav", _nav), Case("reach", _reach)]


def actions(env: VecTask, steps: int, seed: int = 0) -> torch.Tensor:
    """(steps, N, A), held for four steps each so that they lead somewhere; room i's don't depend on N."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(-(-steps // 4), 512, env.num_actions, generator=generator) * 2 - 1
    return drawn.repeat_interleave(4, 0)[:steps, : env.num_envs]


def rollout(env: VecTask, given: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """Everything that the steps return, copied at once."""
    out = []
    for action in given:
        observation, rewards, dones, extras = env.step(action)
        out.append(
            {
                **{f"obs/{k}": v.clone() for k, v in observation.items()},
                **{f"final/{k}": v.clone() for k, v in extras["final_obs"].items()},
                "reward": rewards.clone(),
                "done": dones.clone(),
                **{name: extras[name].clone() for name in ("time_outs", "terminated", "success")},
            }
        )
    return out


def assert_same(one, other, rows=slice(None), its=None):
    """Bit for bit, in ``rows`` of the one and ``its`` of the other."""
    assert len(one) == len(other)
    for k, (a, b) in enumerate(zip(one, other, strict=True)):
        for name in a:
            assert torch.equal(a[name][rows], b[name][rows if its is None else its]), (k, name)
