"""The registries: unknown names and parameters are refused in words that help."""

import pytest

from navtask.errors import ConfigError
from navtask.nav.terms import OBSERVATIONS, REWARDS
from navtask.registry import RewardTerm, check_params


@pytest.mark.parametrize(
    ("registry", "wrong", "key", "near"),
    [(REWARDS, "colision", "task.rewards", "collision"), (OBSERVATIONS, "lidr", "task.observations", "lidar")],
)
def test_an_unknown_name_is_refused_with_the_names_that_exist(registry, wrong, key, near):
    with pytest.raises(ConfigError) as caught:
        registry.get(wrong, key)
    assert caught.value.key == f"{key}.{wrong}"
    assert caught.value.value == wrong
    assert near in caught.value.candidates
    assert set(caught.value.candidates) == set(registry)


def test_built_in_terms_are_there_without_an_import():
    assert len(REWARDS) == 11
    assert len(OBSERVATIONS) == 9


@pytest.mark.parametrize(
    ("term", "params", "key"),
    [
        ("stuck", {"windw": 3}, "k.windw"),
        ("stuck", {"window": 2.5}, "k.window"),
        ("stuck", {"window": True}, "k.window"),
        ("stuck", {"window": None}, "k.window"),
        ("near_obstacle", {"safe_dist": "far"}, "k.safe_dist"),
        ("face_goal", {"motion_weighted": 1}, "k.motion_weighted"),
        ("goal", {"size": 1}, "k.size"),
    ],
)
def test_parameters_must_be_what_the_function_takes(term, params, key):
    with pytest.raises(ConfigError) as caught:
        check_params(REWARDS[term], params, "k")
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("term", "params"),
    [
        ("stuck", {"window": 3, "min_move": 1}),
        ("stuck", {}),
        ("progress", {"gamma": None}),
        ("progress", {"gamma": 1}),
        ("face_goal", {"motion_weighted": False}),
    ],
)
def test_what_fits_is_taken(term, params):
    check_params(REWARDS[term], params, "k")


def test_an_unknown_parameter_names_those_that_exist():
    with pytest.raises(ConfigError, match="min_move") as caught:
        check_params(REWARDS["stuck"], {"minmove": 1.0}, "k")
    assert set(caught.value.candidates) == {"window", "min_move"}


def test_a_parameter_without_a_default_must_be_given():
    def needy(context, *, much: float):
        return context

    check_params(RewardTerm(name="needy", function=needy, trail=None, bounds={}), {"much": 1.0}, "k")
    with pytest.raises(ConfigError, match="no default"):
        check_params(RewardTerm(name="needy", function=needy, trail=None, bounds={}), {}, "k")
