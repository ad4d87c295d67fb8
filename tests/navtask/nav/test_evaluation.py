"""What an evaluation says of a policy is what happened in the rooms."""

import math
from dataclasses import replace

import pytest
import torch
from navsetup import PRESETS, load_nav, load_rooms, rooms_by_hand, use_rooms

from navtask.evaluation import mean, share
from navtask.nav.robot import ROBOT
from navtask.nav.task import Nav

FORWARD, STILL = [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]


def make_evaluator(num=4, preset="open", config=None, rooms=None):
    config = config or load_nav()
    return Nav().make_evaluator(config, rooms or load_rooms(preset), num)


def random_policy(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return lambda observation: torch.rand(len(observation), 3, generator=generator) * 2 - 1


@pytest.fixture(scope="module")
def by_hand():
    """One room four times, the goal 4 m ahead, a box beside the start: who drives on arrives, who turns right crashes,
    who stands still runs out of time, who zigzags arrives late."""
    config = replace(load_nav(), episode_length=6.0)
    evaluator = make_evaluator(4, config=config)
    config = config.rooms
    room = rooms_by_hand(config, start=(-2, 0, 0), goal=(2, 0), boxes=[(-2, -2, 1.0, 0.3, 0.0)], num=4)
    use_rooms(evaluator.env, room)
    evaluator.geodesic = torch.full((4,), 4.0, dtype=torch.float64)  # as the crow flies
    evaluator._hardest = torch.tensor([1])
    step = 0

    def policy(observation):
        nonlocal step
        step += 1
        zigzag = [1.0, 0.4 if step % 2 else -0.4, 0.0]
        return torch.tensor([FORWARD, [0.0, -1.0, 0.0], STILL, zigzag])

    return evaluator.run(policy)


class TestByHand:
    def test_rates(self, by_hand):
        assert by_hand["success_rate"].tolist() == [1, 0, 0, 1]
        assert by_hand["collision_rate"].tolist() == [0, 1, 0, 0]
        assert by_hand["timeout_rate"].tolist() == [0, 0, 1, 0]

    def test_time_is_that_of_the_first_instant_within_the_goal(self, by_hand):
        # 3.7 m at 1.5 m/s, told by control steps of 0.1 s.
        assert by_hand["time_to_goal"][0].item() == pytest.approx(2.5)
        assert by_hand["time_to_goal"][1:3].isnan().all()

    def test_path(self, by_hand):
        assert by_hand["path_length"][0].item() == pytest.approx(3.7, abs=0.08)
        straight, zigzag = by_hand["path_length"][0], by_hand["path_length"][3]
        assert zigzag / straight == pytest.approx(math.hypot(1, 0.4), abs=0.03)

    def test_spl(self, by_hand):
        assert by_hand["spl"][0].item() == 1.0  # the path ends before the goal's centre
        expected = 4 / max(4, by_hand["path_length"][3].item())
        assert by_hand["spl"].tolist() == pytest.approx([1.0, 0.0, 0.0, expected])

    def test_sct(self, by_hand):
        best = 4 / ROBOT.v_max
        expected = [best / max(best, by_hand["time_to_goal"][k].item()) for k in (0, 3)]
        assert by_hand["sct"].tolist() == pytest.approx([expected[0], 0.0, 0.0, expected[1]])

    def test_barn_score_is_half_at_most(self, by_hand):
        # t = 2.5 s is less than 2 t* = 5.3 s: the score's ceiling.
        assert by_hand["barn_score"].tolist() == pytest.approx([0.5, 0.0, 0.0, 0.5])

    def test_clearance_is_the_hulls(self, by_hand):
        # The box's face is 1.7 m to the right of the start, the robot's radius 0.2 m.
        assert by_hand["min_clearance"][2].item() == pytest.approx(1.5, abs=1e-3)
        assert by_hand["min_clearance"][1].item() < 0.01

    def test_action_change(self, by_hand):
        # The first action has none before it; the zigzag changes by 0.8 on one axis each step.
        assert by_hand["action_change"].tolist() == pytest.approx([0.0, 0.0, 0.0, 0.64], abs=1e-6)

    def test_worst_decile_is_of_the_hardest_rooms_alone(self, by_hand):
        assert by_hand["worst_decile_success"][1].item() == 0
        assert by_hand["worst_decile_success"].isnan().tolist() == [True, False, True, True]


def test_metrics_are_those_that_the_task_declares():
    evaluator = make_evaluator(8)
    measured = evaluator.run(random_policy())
    assert tuple(measured) == tuple(Nav.metrics)
    assert evaluator.shares < set(measured)
    assert all(v.shape == (8,) and v.dtype == torch.float64 for v in measured.values())


def test_estimates_are_means_over_the_rooms_that_have_a_number():
    evaluator = make_evaluator(4)
    nan = math.nan
    estimates = evaluator.estimates(
        {
            "success_rate": torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64),
            "time_to_goal": torch.tensor([2.0, 4.0, nan, nan], dtype=torch.float64),
            "path_length": torch.full((4,), nan, dtype=torch.float64),
        }
    )
    assert estimates["success_rate"].value == 0.75
    assert (estimates["time_to_goal"].value, estimates["time_to_goal"].low) == (3.0, pytest.approx(3 - 1.96, abs=1e-3))
    assert math.isnan(estimates["path_length"].value)


class TestIntervals:
    def test_wilson(self):
        # Newcombe 1998, table I: 81 of 263, and none of 20.
        estimate = share(torch.arange(263) < 81)
        assert (estimate.low, estimate.high) == (pytest.approx(0.2553, abs=1e-4), pytest.approx(0.3662, abs=1e-4))
        none = share(torch.zeros(20, dtype=torch.bool))
        assert (none.value, none.low, none.high) == (0.0, 0.0, pytest.approx(0.1611, abs=1e-4))

    def test_mean(self):
        estimate = mean(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        half = 1.959964 * math.sqrt(5 / 3) / 2
        assert (estimate.value, estimate.high - estimate.low) == (2.5, pytest.approx(2 * half))


class TestFrozen:
    @pytest.mark.parametrize(
        ("preset", "expected"),
        [("open", "c81c1c94c46dd9f3"), ("dense", "2be5939e6976fc55"), ("barn", "c3e6b68da0afa721")],
    )
    def test_sets_stay_what_they_are(self, preset, expected):
        """A changed hash is a changed yardstick: results before and after can't be compared."""
        assert make_evaluator(100, preset).set_hash == expected

    @pytest.mark.parametrize("preset", PRESETS)
    def test_the_same_rooms_every_time_for_everyone(self, preset):
        first, second = make_evaluator(6, preset), make_evaluator(6, preset)
        assert first.set_hash == second.set_hash
        a, b, c = first.run(random_policy()), first.run(random_policy()), second.run(random_policy())
        for name in a:
            assert torch.equal(a[name].nan_to_num(-1), b[name].nan_to_num(-1)), name
            assert torch.equal(a[name].nan_to_num(-1), c[name].nan_to_num(-1)), name

    def test_a_larger_set_begins_with_the_smaller_one(self):
        small, large = make_evaluator(4), make_evaluator(8)
        assert torch.equal(small.env.rooms.centre, large.env.rooms.centre[:4])
        assert small.set_hash != large.set_hash

    def test_training_rooms_are_others(self):
        trained = Nav().make_env(load_nav(), num_envs=8, seed=0)
        frozen = make_evaluator(8).env
        same = (trained.rooms.start.unsqueeze(1) - frozen.rooms.start.unsqueeze(0)).abs().sum(-1) < 1e-6
        assert not same.any()

    def test_every_goal_can_be_reached(self):
        evaluator = make_evaluator(100, "dense")
        assert evaluator.unreachable_share == 0
        straight = (evaluator.env.rooms.goal - evaluator.env.rooms.start[:, :2]).norm(dim=-1)
        assert (evaluator.geodesic > straight - 0.1).all()
