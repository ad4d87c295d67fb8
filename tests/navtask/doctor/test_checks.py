"""The doctor names exactly the planted fault, and nothing on healthy tasks."""

import inspect
from dataclasses import replace

import pytest
from foreign import (
    LateReward,
    NoExtras,
    NoLimit,
    OddTerms,
    OneStartForAll,
    OnlyOne,
    PointMass,
    Raises,
    RaisesOnReset,
    SaysNothingOfTime,
    Unseeded,
)
from mutants import MUTANTS, Delayed
from navsetup import load_nav
from reachsetup import load_reach

from navtask.doctor import CHECKS, CRASHED, FAIL, PASS, UNKNOWN, Patient, examine
from navtask.nav.env import NavEnv
from navtask.reach.env import ReachEnv

SEEDS = (0, 1, 2)
ROOMS = 32
FEW_ROOMS = 16
"""Enough to see a fault by, if not for a healthy one to pass in everything."""


def verdicts(make, seed, rooms=ROOMS, **settings):
    return {finding.check: finding.verdict for finding in examine(Patient(make, seed=seed, rooms=rooms, **settings))}


def failed(found):
    return [check for check, verdict in found.items() if verdict not in (PASS, UNKNOWN)]


def untold(found):
    return [check for check, verdict in found.items() if verdict == UNKNOWN]


def nav(preset="open", **changes):
    config = load_nav(preset, **changes)
    config.observations["action_prev"].enabled = True
    return config


def noisy(preset):
    config = nav(preset, history=3)
    config.lidar.noise_std, config.lidar.dropout = 0.03, 0.05
    return config


FIRST = {}
for _name, _mutant in MUTANTS.items():
    FIRST.setdefault(_mutant.fault, _name)


def planted():
    """One mutant for each fault under three seeds, the further ones under one."""
    for name, mutant in MUTANTS.items():
        for seed in SEEDS if FIRST[mutant.fault] == name else SEEDS[:1]:
            yield pytest.param(name, seed, id=f"{name}-{seed}")


def test_every_check_has_a_mutant():
    assert set(FIRST) == {check.name for check in CHECKS}


@pytest.mark.parametrize(("name", "seed"), list(planted()))
def test_the_planted_fault_is_named_and_no_other(name, seed):
    mutant, config = MUTANTS[name], nav()
    found = verdicts(lambda rooms, seed: mutant(config, num_envs=rooms, seed=seed), seed, FEW_ROOMS)
    assert failed(found) == [mutant.fault]


@pytest.mark.parametrize("seed", SEEDS)
class TestHealthy:
    @pytest.mark.parametrize("preset", ["open", "dense"])
    def test_navigation_passes_every_check(self, preset, seed):
        config = load_nav(preset)
        found = verdicts(lambda rooms, seed: NavEnv(config, num_envs=rooms, seed=seed), seed)
        assert set(found.values()) == {PASS}

    def test_so_it_does_with_noise_history_and_the_privileged_group(self, seed):
        config = noisy(("open", "dense")[seed % 2])
        found = verdicts(lambda rooms, seed: NavEnv(config, num_envs=rooms, seed=seed, privileged=True), seed)
        assert set(found.values()) == {PASS}

    def test_an_action_that_takes_effect_a_step_later_is_no_fault(self, seed):
        config = nav()
        found = verdicts(lambda rooms, seed: Delayed(config, num_envs=rooms, seed=seed), seed)
        assert set(found.values()) == {PASS}

    def test_reaching_fails_nothing(self, seed):
        config = load_reach()
        found = verdicts(lambda rooms, seed: ReachEnv(config, num_envs=rooms, seed=seed), seed)
        assert failed(found) == []
        assert set(untold(found)) == {"instants", "solid obstacles", "seen obstacles"}, "no ends by chance, no scan"


@pytest.mark.parametrize(
    ("untold_of", "changes"),
    [
        ((), {"episode_length": 5.0}),
        (("action range",), {"control_dt": 0.5}),
        (("solid obstacles", "seen obstacles"), {"lidar": {"noise_std": 0.1}}),
        (("solid obstacles", "seen obstacles"), {"lidar": {"beams": 16}}),
        (("solid obstacles", "seen obstacles"), {"history": 3, "lidar": {"noise_std": 0.3, "dropout": 0.5}}),
    ],
    ids=["short episodes", "slow control", "noise", "few beams", "hardly a scan"],
)
def test_unusual_settings_are_no_fault(untold_of, changes):
    config = nav()
    config = replace(config, **changes | {"lidar": replace(config.lidar, **changes.get("lidar", {}))})
    found = verdicts(lambda rooms, seed: NavEnv(config, num_envs=rooms, seed=seed), 0, 48)
    assert failed(found) == []
    assert tuple(untold(found)) == untold_of


class TestForeign:
    """What offers no more than rsl_rl's VecEnv."""

    CANNOT_BE_SEEN = (
        "hidden state",
        "random reset",
        "goals differ",
        "truncation",
        "action range",
        "solid obstacles",
        "seen obstacles",
        "first ages",
    )

    @pytest.mark.parametrize("seed", SEEDS)
    def test_what_cannot_be_seen_is_no_pass(self, seed):
        found = verdicts(PointMass, seed)
        assert failed(found) == []
        assert tuple(untold(found)) == self.CANNOT_BE_SEEN

    def test_without_a_seed_nothing_is_said_that_needs_copies(self):
        found = verdicts(lambda rooms, _seed: Unseeded(rooms), 0, seeded=False)
        assert failed(found) == []
        need_copies = {"reset consistency", "hidden state", "instants", "reward instant", "knows the future"}
        assert need_copies < set(untold(found))

    @pytest.mark.parametrize(
        ("mutant", "fault"),
        [
            (SaysNothingOfTime, "truncation"),
            (LateReward, "reward instant"),
            (OneStartForAll, "rooms differ"),
            (Raises, "stress"),
        ],
    )
    @pytest.mark.parametrize("seed", SEEDS)
    def test_what_can_be_seen_is_named(self, mutant, fault, seed):
        assert failed(verdicts(mutant, seed)) == [fault]


class TestRaises:
    """Whose code it was that raised, and where, is told in one line."""

    def findings(self, make, seed=0):
        return {finding.check: finding for finding in examine(Patient(make, seed=seed, rooms=ROOMS))}

    def line(self, kind, words):
        lines, first = inspect.getsourcelines(kind)
        return first + next(k for k, line in enumerate(lines) if words in line)

    def test_what_the_environment_raises_is_its_fault_and_told_once(self):
        found = self.findings(Raises)
        where = f"foreign.py:{self.line(Raises, 'no such joint')}"
        assert found["stress"].verdict == FAIL
        assert found["stress"].figure.startswith("the environment raises RuntimeError: no such joint, at ")
        assert found["stress"].figure.endswith(where)
        assert found["kept tensors"] == replace(found["kept tensors"], verdict=UNKNOWN, figure="raises as in 'stress'")

    def test_also_where_it_does_so_late(self):
        found = self.findings(RaisesOnReset)
        (fault,) = [finding for finding in found.values() if finding.verdict == FAIL]
        assert (fault.check, fault.figure.partition(",")[0]) == ("stress", "the environment raises KeyError: 'goal'")

    def test_what_cannot_be_made_twice_is_not_sick(self):
        OnlyOne.made = False
        found = self.findings(OnlyOne)
        assert not [finding for finding in found.values() if finding.verdict in (FAIL, CRASHED)]
        assert found["reset consistency"].figure.startswith(
            "no other can be made, of 32 rooms and seed 0: RuntimeError"
        )

    @pytest.mark.parametrize(
        ("kind", "told"),
        [
            (NoExtras, "step() returns 3 values, not observation, reward, dones and extras"),
            (NoLimit, "has no max_episode_length, as rsl_rl's VecEnv has"),
        ],
    )
    def test_what_is_no_vec_env_is_told_so(self, kind, told):
        found = self.findings(kind)
        assert [(f.check, f.figure) for f in found.values() if f.verdict in (FAIL, CRASHED)] == [("stress", told)]

    def test_what_a_check_raises_is_not_the_environments_fault(self):
        found = self.findings(OddTerms)
        told = "the check raises AttributeError: 'str' object has no attribute 'start', at navtask/doctor/running.py:"
        assert found["stress"].verdict == CRASHED
        assert found["stress"].figure.startswith(told)
        assert found["reset consistency"].verdict == PASS


def test_the_environment_is_not_changed_by_what_is_asked_of_it():
    """Copies that the doctor reuses are as good as new ones: every finding is what it is without reuse."""
    config = load_nav()

    class Never(Patient):
        reuse = property(lambda self: False, lambda self, value: None)

    def figures(kind):
        patient = kind(lambda rooms, seed: NavEnv(config, num_envs=rooms, seed=seed), seed=0, rooms=FEW_ROOMS)
        return [finding.figure for finding in examine(patient)]

    assert figures(Patient) == figures(Never)
