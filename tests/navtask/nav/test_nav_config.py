"""Settings that cannot be are refused before anything is built: key, value, what was expected."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
from navsetup import PRESETS, load_nav, load_rooms

from navtask.config import ObservationTermConfig, RewardTermConfig
from navtask.errors import ConfigError
from navtask.nav.config import validate, validate_rooms
from navtask.nav.robot import ROBOT


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_in_conf_is_fine(preset):
    validate(load_nav(preset))


NAN, INF = math.nan, math.inf

WRONG_ROOMS = [
    ("size", [10.0]),
    ("size", [10.0, 1.0]),
    ("size", [NAN, 10.0]),
    ("size", [INF, 10.0]),
    ("size", [500.0, 500.0]),
    ("obstacles", []),
    ("obstacles", [5]),
    ("obstacles", [12, 8]),
    ("obstacles", [-1, 8]),
    ("obstacles", [8, 129]),
    ("half_size", [0.6, 0.15]),
    ("half_size", [0.0, 0.6]),
    ("half_size", [0.15, INF]),
    ("gap", 0.4),
    ("gap", 0.1),
    ("gap", NAN),
    ("margin", -0.1),
    ("margin", NAN),
    ("margin", 4.9),
    ("goal_distance", -1.0),
    ("goal_distance", 10.0),
    ("goal_distance", NAN),
    ("tries", 0),
]


@pytest.mark.parametrize(("key", "value"), WRONG_ROOMS)
def test_rooms_that_cannot_be(key, value):
    with pytest.raises(ConfigError) as caught:
        validate_rooms(load_rooms(**{key: value}), ROBOT.radius)
    assert caught.value.key == f"task.rooms.{key}"
    assert f"task.rooms.{key}={value!r}: expected " in str(caught.value)


WRONG = [
    ("control_dt", 0.05),
    ("control_dt", 0.01),
    ("control_dt", NAN),
    ("physics_dt", 0.0),
    ("physics_dt", 0.1),
    ("physics_dt", NAN),
    ("episode_length", 0.1),
    ("episode_length", NAN),
    ("episode_length", INF),
    ("goal_radius", 0.0),
    ("goal_distance_scale", 0.0),
    ("reward_scale", 0.0),
    ("reward_scale", INF),
    ("history", 0),
    ("history", 17),
    ("observations", {}),
    ("rewards", {}),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_tasks_that_cannot_be(key, value):
    with pytest.raises(ConfigError) as caught:
        validate(load_nav(**{key: value}))
    assert caught.value.key.startswith("task.")
    assert caught.value.key == f"task.{key}"


WRONG_LIDAR = [
    ("beams", 3),
    ("beams", 5000),
    ("max_range", 0.1),
    ("noise_std", -1.0),
    ("noise_std", INF),
    ("dropout", 1.0),
]


@pytest.mark.parametrize(("key", "value"), WRONG_LIDAR)
def test_lidars_that_cannot_be(key, value):
    config = load_nav()
    with pytest.raises(ConfigError, match=f"task.lidar.{key}="):
        validate(replace(config, lidar=replace(config.lidar, **{key: value})))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_weight_must_be_finite(value):
    config = load_nav()
    config.rewards["goal"].weight = value
    with pytest.raises(ConfigError, match=r"task.rewards.goal.weight="):
        validate(config)


@pytest.mark.parametrize(
    ("term", "params"),
    [
        ("stuck", {"window": 0}),
        ("stuck", {"window": -3}),
        ("near_obstacle", {"safe_dist": 0.0}),
        ("near_obstacle", {"safe_dist": NAN}),
        ("progress", {"gamma": 1.5}),
    ],
)
def test_a_parameter_must_make_sense(term, params):
    config = load_nav()
    config.rewards[term].params = params
    with pytest.raises(ConfigError):
        validate(config)


def test_unknown_terms_name_their_key_and_the_terms_that_exist():
    config = load_nav()
    config.rewards["colision"] = RewardTermConfig(weight=1.0)
    with pytest.raises(ConfigError, match=r"task.rewards.colision") as caught:
        validate(config)
    assert "collision" in caught.value.candidates
    config = load_nav()
    config.observations["lidar2"] = ObservationTermConfig()
    with pytest.raises(ConfigError, match=r"task.observations.lidar2") as caught:
        validate(config)
    assert "lidar" in caught.value.candidates


def test_the_actor_needs_a_deployable_term():
    config = load_nav()
    for name, term in config.observations.items():
        term.enabled = name.startswith("truth_")
    with pytest.raises(ConfigError, match="DEPLOYABLE"):
        validate(config)


def test_settings_are_read_without_torch():
    code = "import sys, navtask.nav.config; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_robot_is_what_its_model_says():
    assert (ROBOT.radius, ROBOT.height, ROBOT.v_max, ROBOT.omega_max) == (0.2, 0.15, 1.5, 2.0)
    assert ROBOT.lag == pytest.approx(0.01)
