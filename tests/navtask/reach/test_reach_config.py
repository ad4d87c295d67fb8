"""Settings that cannot be are refused before anything is built, in words that name key, value and what was expected."""

import pytest
from reachsetup import PRESETS, load_reach, load_targets

from navtask import tasks
from navtask.config import ObservationTermConfig, RewardTermConfig
from navtask.errors import ConfigError
from navtask.reach.config import validate, validate_targets


@pytest.mark.parametrize("preset", PRESETS)
def test_the_presets_are_fine(preset):
    validate(load_reach(preset))


def test_the_numbers_are_those_of_the_specification():
    config = load_reach()
    assert (config.control_dt, config.physics_dt, config.episode_length) == (0.02, 0.004, 2.0)
    assert config.goal_radius == 0.02
    assert config.targets.centre == [0.4, 0.0, 0.35]
    assert config.targets.half_size == [0.1, 0.1, 0.1]
    assert config.targets.start_spread == 0.1
    assert config.rewards["distance"].weight == -1.0
    assert config.rewards["effort"].weight == -0.001
    assert config.rewards["goal"].weight > 0


@pytest.mark.parametrize(
    ("changes", "key", "expected"),
    [
        ({"centre": [0.4, 0.0]}, "centre", "three finite lengths"),
        ({"centre": [0.4, 0.0, float("nan")]}, "centre", "three finite lengths"),
        ({"half_size": [0.1, -0.1, 0.1]}, "half_size", "none below 0"),
        ({"centre": [0.7, 0.0, 0.35]}, "half_size", "0.73 m, the arm's reach"),
        ({"half_size": [0.1, 0.6, 0.1]}, "half_size", "a corner is"),
        ({"start_spread": -0.1}, "start_spread", "0 to 1.12 rad"),
        ({"start_spread": 2.0}, "start_spread", "0 to 1.12 rad"),
    ],
)
def test_targets_that_cannot_be(changes, key, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        validate_targets(load_targets(**changes), "evaluation.frozen.mine")
    assert caught.value.key == f"evaluation.frozen.mine.{key}"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"physics_dt": 0.003}, "task.control_dt"),
        ({"physics_dt": 0.0}, "task.physics_dt"),
        ({"episode_length": 0.02}, "task.episode_length"),
        ({"goal_radius": 0.0}, "task.goal_radius"),
        ({"reward_scale": -1.0}, "task.reward_scale"),
        ({"rewards": {}}, "task.rewards"),
        ({"rewards": {"distanse": RewardTermConfig(weight=1.0)}}, "task.rewards.distanse"),
        ({"rewards": {"distance": RewardTermConfig(weight=float("inf"))}}, "task.rewards.distance.weight"),
        ({"rewards": {"distance": RewardTermConfig(weight=1.0, params={"p": 2})}}, "task.rewards.distance.params.p"),
        ({"observations": {"joint_pos": ObservationTermConfig(enabled=False)}}, "task.observations"),
        ({"observations": {"lidar": ObservationTermConfig()}}, "task.observations.lidar"),
    ],
)
def test_a_task_that_cannot_be(changes, key):
    with pytest.raises(ConfigError) as caught:
        validate(load_reach(**changes))
    assert caught.value.key == key


def test_terms_are_this_tasks_own():
    """What navigation calls a lidar, an arm hasn't got, and the nearest name is one of its own."""
    with pytest.raises(ConfigError) as caught:
        validate(load_reach(rewards={"progress": RewardTermConfig(weight=1.0)}))
    assert set(caught.value.candidates) == {"distance", "effort", "goal", "action_smooth"}


def test_the_task_is_there_by_name():
    definition = tasks.get("reach")
    assert "reach" in tasks.names()
    assert definition.groups == ("policy",)
    assert definition.world_type.__name__ == "TargetsConfig"
