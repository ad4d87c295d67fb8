"""Whatever a healthy task pays for, nobody calls it sick: each term alone, without any one, at the ends of what is
searched and between them."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from navsetup import load_nav
from reachsetup import load_reach

from navtask.doctor import FAIL, PASS, Finding, Patient
from navtask.doctor.instants import PASTS, Fork, Responses, future, reward_instant
from navtask.nav.env import NavEnv
from navtask.reach.env import ReachEnv

ROOMS = 32
SWEEPS = Path(__file__).parents[3] / "conf" / "sweep"


class ByTerm:
    """Pays (N, terms): what each term alone comes to, since what is paid moves nothing."""

    def __init__(self, config, **settings):
        rewards = {name: replace(term, weight=1.0) for name, term in config.rewards.items()}
        super().__init__(replace(config, rewards=rewards), **settings)

    def step(self, actions):
        before = self.episode.reward_sums.clone()
        observation, _, done, extras = super().step(actions)
        return observation, self.episode.reward_sums - before, done, extras


class NavByTerm(ByTerm, NavEnv):
    pass


class ReachByTerm(ByTerm, ReachEnv):
    pass


TASKS = {
    "nav": (NavByTerm, lambda: load_nav("dense"), "reward_weights"),
    "reach": (ReachByTerm, load_reach, "reach_weights"),
}


def searched(sweep):
    """Term -> the ends of its weight's interval."""
    params = yaml.safe_load((SWEEPS / f"{sweep}.yaml").read_text())["sweep"]["params"]
    numbers = r"interval\(([-\d.]+), ([-\d.]+)\)"
    return {path.split(".")[2]: tuple(map(float, re.search(numbers, text).groups())) for path, text in params.items()}


def weightings(today, ends, seed):
    """Name -> weights, of a healthy task each."""
    drawn = random.Random(seed)
    yield "today", today
    for term, weight in today.items():
        yield f"without {term}", today | {term: 0.0}
        yield f"{term} alone", dict.fromkeys(today, 0.0) | {term: weight or -1.0}
    for term, limits in ends.items():
        for limit in limits:
            yield f"{term} {limit:g}", today | {term: limit}
    for k in range(4):
        yield f"drawn {k}", today | {term: drawn.uniform(*limits) for term, limits in ends.items()}
        yield f"corner {k}", today | {term: drawn.choice(limits) for term, limits in ends.items()}
        yield f"few {k}", today | {term: drawn.choice((0.0, drawn.uniform(*limits))) for term, limits in ends.items()}


class Seen(Patient):
    """Of whom it is known already how it answers to actions."""

    responses: Responses

    def once(self, look):
        return self.responses if look == Responses.of else super().once(look)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("task", TASKS)
def test_no_weighting_of_a_healthy_task_is_called_sick(task, seed):
    kind, load, sweep = TASKS[task]
    config = load()
    today = {name: term.weight for name, term in config.rewards.items()}
    patient = Seen(lambda rooms, seed: kind(config, num_envs=rooms, seed=seed), seed=seed, rooms=ROOMS)
    forks = [Fork.of(patient, seed + k, past) for k, past in enumerate(PASTS)]
    before = {"reset consistency": Finding("reset consistency", PASS, "", "")}
    sick = {}
    for name, weights in weightings(today, searched(sweep), seed):
        paid = config.reward_scale * torch.tensor(list(weights.values()))
        patient.responses = Responses.to([replace(fork, reward=fork.reward @ paid) for fork in forks])
        for check in (reward_instant, future):
            verdict, figure = check(patient, before)
            if verdict == FAIL:
                sick[name] = figure
        assert not patient.responses.delay, "an action moves the task at once"
        if name == "today":
            assert reward_instant(patient, before)[0] == PASS
    assert sick == {}
