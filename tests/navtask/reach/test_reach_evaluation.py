"""What a policy is worth: every metric recomputed by hand from the arms' own states, frozen sets that stay what they
are, and a classical controller as a yardstick."""

import math

import mujoco
import numpy as np
import pytest
import torch
from reachsetup import PRESETS, load_reach, load_targets, make_reach, towards_target

from navtask.errors import ConfigError
from navtask.evaluation import share
from navtask.reach.arm import JOINTS, build_model
from navtask.reach.planners import ResolvedRate
from navtask.reach.task import Reach

NUM = 24


@pytest.fixture
def evaluator():
    config = load_reach()
    return Reach().make_evaluator(config, config.targets, NUM)


def half_of_them(evaluator):
    """Arms of even number go for their targets, the others dither."""
    even = (torch.arange(NUM) % 2 == 0).unsqueeze(-1)
    dither = torch.full((NUM, JOINTS), 0.1)

    def policy(observation):
        dither.neg_()
        return torch.where(even, towards_target(evaluator.env), dither)

    return policy


def engine_tools(q):
    """(T, 3) where the engine has the tool."""
    model = build_model(0.004)
    data = mujoco.MjData(model)
    places = []
    for row in q:
        data.qpos[:] = row
        mujoco.mj_kinematics(model, data)
        places.append(data.site("tool").xpos.copy())
    return np.array(places)


class TestMetrics:
    def test_every_one_by_hand(self, evaluator):
        env, seen = evaluator.env, []

        def watch():
            seen.append((env.physics.qpos.double().clone(), env.episode.action.double().clone(), env.active.clone()))

        measured = evaluator.run(half_of_them(evaluator), watch)
        even = torch.arange(NUM) % 2 == 0
        assert torch.equal(measured["success_rate"].bool(), even)
        for room in range(NUM):
            steps = sum(bool(active[room]) for _, _, active in seen[:-1])
            tool = engine_tools(torch.stack([q[room] for q, _, _ in seen[: steps + 1]]).numpy())
            target = env.targets.target[room].double().numpy()
            distances = np.linalg.norm(tool - target, axis=1)
            assert (distances[:-1] >= 0.02).all()
            reached = distances[-1] < 0.02
            assert reached == (room % 2 == 0)
            path = np.linalg.norm(np.diff(tool, axis=0), axis=1).sum()
            taken = np.stack([action[room].numpy() for _, action, _ in seen[1 : steps + 1]])
            expected = {
                "success_rate": float(reached),
                "timeout_rate": float(not reached),
                "spl": reached * distances[0] / max(path, distances[0]),
                "time_to_goal": steps * 0.02 if reached else math.nan,
                "path_length": path if reached else math.nan,
                "final_distance": distances[-1],
                "effort": np.square(taken).sum(1).mean(),
                "action_change": np.square(np.diff(taken, axis=0)).sum(1).mean(),
            }
            assert {name: values[room].item() for name, values in measured.items()} == pytest.approx(
                expected, abs=1e-4, nan_ok=True
            )
            assert reached or steps == 100

    def test_they_are_those_that_the_task_declares(self, evaluator):
        measured = evaluator.run(lambda observation: torch.zeros(NUM, JOINTS))
        assert tuple(measured) == tuple(Reach.metrics)
        assert evaluator.shares <= set(measured)
        estimates = evaluator.estimates(measured)
        assert estimates["success_rate"] == share(torch.zeros(NUM, dtype=torch.bool))
        assert estimates["timeout_rate"].value == 1.0
        assert math.isnan(estimates["time_to_goal"].value)
        assert estimates["effort"].value == 0.0

    def test_the_same_every_time(self, evaluator):
        policy = half_of_them(evaluator)
        first, second = evaluator.run(policy), evaluator.run(policy)
        for name in first:
            assert torch.equal(first[name].nan_to_num(-1), second[name].nan_to_num(-1)), name


class TestFrozenSets:
    @pytest.mark.parametrize(("preset", "expected"), [("box", "d56af3c793ba3fe3"), ("wide", "c9bfdfa6d8dec442")])
    def test_stay_what_they_are(self, preset, expected):
        """A changed hash is a changed yardstick: results before and after can't be compared."""
        config = load_reach()
        evaluator = Reach().make_evaluator(config, load_targets(preset), 1000)
        assert evaluator.set_hash == expected
        assert evaluator.unreachable_share == 0.0

    def test_are_none_of_those_trained_on(self):
        config = load_reach()
        frozen = Reach().make_evaluator(config, config.targets, 64).env.targets.target
        training = torch.cat([make_reach(num_envs=64, seed=seed).targets.target for seed in range(5)])
        assert not (training[:, None] == frozen[None]).all(-1).any()

    def test_a_smaller_set_is_the_beginning_of_a_larger_one(self):
        config = load_reach()
        few, many = (Reach().make_evaluator(config, config.targets, num) for num in (8, 32))
        assert torch.equal(few.env.targets.target, many.env.targets.target[:8])
        assert torch.equal(few.env.targets.start, many.env.targets.start[:8])
        assert few.set_hash != many.set_hash

    def test_what_cannot_be_reached_is_reported(self):
        """Half of a line beyond the arm's reach, which is 0.73 m from a shoulder at (0, 0, 0.2)."""
        config = load_reach()
        beyond = load_targets(centre=[0.75, 0.0, 0.2], half_size=[0.1, 0.0, 0.0])
        assert 0.4 < Reach().make_evaluator(config, beyond, 256).unreachable_share < 0.6


class TestResolvedRate:
    @pytest.mark.parametrize("preset", PRESETS)
    def test_reaches_every_target_in_time_and_nearly_straight(self, preset):
        """So a policy that doesn't has itself to blame."""
        config = load_reach()
        evaluator = Reach().make_evaluator(config, load_targets(preset), 500)
        measured = evaluator.run(ResolvedRate(config))
        assert measured["success_rate"].mean() == 1.0
        assert measured["spl"].mean() > 0.95

    def test_its_first_step_is_that_of_the_engines_jacobian(self):
        env = make_reach(num_envs=64)
        actions = ResolvedRate(env.config)(env.get_observations())
        cosine = torch.nn.functional.cosine_similarity(actions, towards_target(env))
        assert cosine.min() > 0.99, "but for the damping"
        assert torch.allclose(actions.abs().amax(-1), torch.ones(64))

    def test_finds_what_it_needs_among_other_terms(self):
        config = load_reach()
        terms = dict(reversed(config.observations.items()))
        terms["action_prev"].enabled = True
        plain, mixed = make_reach(), make_reach(load_reach(observations=terms))
        expected = ResolvedRate(plain.config)(plain.get_observations())
        assert torch.equal(ResolvedRate(mixed.config)(mixed.get_observations()), expected)

    def test_refuses_a_task_that_does_not_show_it(self):
        config = load_reach()
        config.observations["to_target"].enabled = False
        with pytest.raises(ConfigError, match=r"to_target\.enabled"):
            ResolvedRate(config)


def test_an_episode_can_be_watched(evaluator):
    seen = []
    measured = evaluator.run(half_of_them(evaluator), lambda: seen.append(evaluator.configuration().clone()))
    good, failed = evaluator.replays(measured, torch.stack(seen), 2)
    assert (good.outcome, failed.outcome) == ("success", "timeout")
    assert np.linalg.norm(good.trail[-1] - good.goal) < good.goal_radius
    assert np.abs(good.trail - engine_tools(good.qpos)).max() < 1e-5
    assert len(failed.qpos) == 101
    left, right, bottom, top = good.extent
    for replay in (good, failed):
        assert ((replay.trail[:, 0] > left) & (replay.trail[:, 0] < right)).all()
        assert ((replay.trail[:, 2] > bottom) & (replay.trail[:, 2] < top)).all()
