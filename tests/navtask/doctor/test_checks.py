"""The doctor names exactly the planted fault, and nothing on healthy tasks."""

import pytest
from mutants import MUTANTS
from navsetup import load_nav

from navtask.doctor import PASS, UNKNOWN, Patient, examine

SEEDS = (0, 1, 2)


def verdicts(make, seed, rooms=48):
    return {finding.check: finding.verdict for finding in examine(Patient(make, seed=seed, rooms=rooms))}


def failed(found):
    return [check for check, verdict in found.items() if verdict not in (PASS, UNKNOWN)]


def settings(**changes):
    config = load_nav(**changes)
    config.observations["action_prev"].enabled = True
    return config


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_planted_fault_is_named_and_no_other(name, seed):
    mutant, config = MUTANTS[name], settings()
    found = verdicts(lambda rooms, seed: mutant(config, num_envs=rooms, seed=seed), seed)
    assert failed(found) == [mutant.fault]
