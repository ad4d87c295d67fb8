"""The reward's terms, value by value, with the default weights and parameters pinned."""

import inspect
import math
from itertools import pairwise

import pytest
import torch
from instants import context
from navsetup import load_nav

from navtask.config import RewardTermConfig
from navtask.errors import TermError
from navtask.nav.terms import REWARDS, reward

T, F = torch.tensor([True]), torch.tensor([False])


def value(name, params=None, **given):
    out = REWARDS[name].function(context(**given), **(params or {}))
    assert out.shape == (1,)
    return out.item()


def facing(cos, speed):
    return {"sense": {"goal_bearing": torch.tensor([[cos, 0.0]]), "vel_body": torch.tensor([[speed, 0.7]])}}


def shortest(distance):
    scan = torch.full((1, 8), 4.0)
    scan[0, 5] = distance
    return {"sense": {"scan": scan}}


def acted(action, before=(0.0, 0.0, 0.0)):
    return {"action": torch.tensor([action]), "action_before": torch.tensor([before])}


def distance(now, before):
    return {"sense": {"goal_distance": torch.tensor([now])}, "goal_distance_before": torch.tensor([before])}


def moved(here, there, step, window=3):
    """Now at ``here``; ``window`` steps ago at ``there``, before and after that far away."""
    trail = torch.full((1, 4, 2), 50.0)
    trail[0, window] = torch.tensor(there)
    return {"trail": trail, "step": torch.tensor([step]), "true": {"pose": torch.tensor([[*here, 0.0]])}}


STUCK = {"window": 3, "min_move": 0.3}

# Every row of the table: term, parameters, the step, what must come out.
ROWS = [
    ("goal", {}, {"success": T}, 1.0),
    ("goal", {}, {"success": F, "collision": T}, 0.0),
    ("progress", {}, distance(2.5, 3.0), 0.5),
    ("progress", {}, distance(3.5, 3.0), -0.5),
    ("progress", {"gamma": None}, distance(2.5, 3.0), 0.5),
    ("progress", {"gamma": 0.9}, distance(2.5, 3.0), 0.5 + 0.1 * 2.5),
    ("progress", {"gamma": 0.9}, distance(3.0, 3.0), 0.1 * 3.0),
    ("face_goal", {}, facing(0.8, 1.0), 0.8 * 0.5),
    ("face_goal", {}, facing(0.8, -1.0), 0.8 * 0.5),
    ("face_goal", {}, facing(-0.8, 5.0), -0.8),
    ("face_goal", {}, facing(0.8, 0.0), 0.0),
    ("face_goal", {"motion_weighted": False}, facing(0.8, 0.0), 0.8),
    ("time", {}, {}, 1.0),
    ("near_obstacle", {}, shortest(4.0), 0.0),
    ("near_obstacle", {}, shortest(0.25), 0.0),
    ("near_obstacle", {}, shortest(0.20), 0.2),
    ("near_obstacle", {"safe_dist": 0.5}, shortest(0.20), 0.6),
    ("near_obstacle", {}, shortest(0.0), 1.0),
    ("action_smooth", {}, acted((0.5, -0.5, 1.0), (0.25, 0.5, -1.0)), 0.0625 + 1.0 + 4.0),
    ("action_smooth", {}, acted((0.5, 0.0, 0.0), (0.5, 0.0, 0.0)), 0.0),
    ("backward", {}, acted((0.5, 0.0, 0.0)), 0.0),
    ("backward", {}, acted((-0.05, -1.0, -1.0)), 0.0),
    ("backward", {}, acted((-0.45, 0.0, 0.0)), 0.4),
    ("backward", {"thresh": 0.2}, acted((-0.3, 0.0, 0.0)), 0.5),
    ("stuck", STUCK, moved((1.0, 1.0), (1.0, 1.29), 7), 1.0),
    ("stuck", STUCK, moved((1.0, 1.0), (1.0, 1.31), 7), 0.0),
    ("stuck", STUCK, moved((1.0, 1.0), (1.0, 1.0), 3), 1.0),
    ("stuck", STUCK, moved((1.0, 1.0), (1.0, 1.0), 2), 0.0),
    ("stuck", {"window": 3, "min_move": 0.2}, moved((1.0, 1.0), (1.0, 1.29), 7), 0.0),
    ("stuck", {"window": 2, "min_move": 0.3}, moved((1.0, 1.0), (1.1, 1.0), 9, window=2), 1.0),
    ("collision", {}, {"collision": T}, 1.0),
    ("collision", {}, {"success": T}, 0.0),
    ("timeout", {}, {"truncated": T}, 1.0),
    ("timeout", {}, {"collision": T}, 0.0),
    ("out_of_bounds", {}, {"out_of_bounds": T}, 1.0),
    ("out_of_bounds", {}, {}, 0.0),
]


@pytest.mark.parametrize(("name", "params", "given", "expected"), ROWS)
def test_row(name, params, given, expected):
    assert value(name, params, **given) == pytest.approx(expected, abs=1e-6)


def test_the_table_is_complete():
    assert {row[0] for row in ROWS} == set(REWARDS) == set(load_nav().rewards)


DEFAULTS = {
    "goal": (15.0, {}),
    "progress": (2.0, {"gamma": None}),
    "face_goal": (0.05, {"motion_weighted": True}),
    "time": (-0.02, {}),
    "near_obstacle": (-0.08, {"safe_dist": 0.25}),
    "action_smooth": (-0.02, {}),
    "backward": (-0.05, {"thresh": -0.05}),
    "stuck": (-0.03, {"window": 25, "min_move": 0.30}),
    "collision": (-12.0, {}),
    "timeout": (-4.0, {}),
    "out_of_bounds": (0.0, {}),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_default_weight_and_parameters(name):
    term = load_nav().rewards[name]
    assert (term.weight, term.params) == DEFAULTS[name]
    # What a function takes when nothing is said is what conf/ says.
    keywords = {
        p.name: p.default
        for p in inspect.signature(REWARDS[name].function).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }
    assert keywords == DEFAULTS[name][1]


def test_shaping_with_gamma_telescopes():
    """Discounted, the shaped rewards of a whole way sum to d(0) - gamma^T d(T), whatever lies between."""
    gamma, way = 0.9, [5.0, 4.0, 4.5, 2.0, 1.0]
    total = sum(
        gamma**t * value("progress", {"gamma": gamma}, **distance(now, before))
        for t, (before, now) in enumerate(pairwise(way))
    )
    assert total == pytest.approx(way[0] - gamma ** (len(way) - 1) * way[-1], abs=1e-5)


def test_terms_change_nothing_and_depend_on_their_own_room_only():
    generator = torch.Generator().manual_seed(0)
    num = 6
    given = {
        "sense": {
            "goal_distance": torch.rand(num, generator=generator),
            "goal_bearing": torch.randn(num, 2, generator=generator),
            "vel_body": torch.randn(num, 2, generator=generator),
            "scan": torch.rand(num, 8, generator=generator),
        },
        "true": {"pose": torch.rand(num, 3, generator=generator)},
        "action": torch.rand(num, 3, generator=generator) * 2 - 1,
        "action_before": torch.rand(num, 3, generator=generator) * 2 - 1,
        "trail": torch.rand(num, 4, 2, generator=generator),
        "step": torch.arange(num),
    }
    parameters = {"stuck": STUCK}
    for name, term in REWARDS.items():
        whole = context(num, **given)
        before = [t.clone() for t in (*vars(whole.sensed).values(), *vars(whole).values()) if torch.is_tensor(t)]
        out = term.function(whole, **parameters.get(name, {}))
        after = [t for t in (*vars(whole.sensed).values(), *vars(whole).values()) if torch.is_tensor(t)]
        assert all(map(torch.equal, before, after))
        for i in range(num):
            one = {
                key: {k: v[i : i + 1] for k, v in v_.items()} if isinstance(v_, dict) else v_[i : i + 1]
                for key, v_ in given.items()
            }
            assert term.function(context(**one), **parameters.get(name, {})).item() == out[i].item()


@pytest.fixture
def registered():
    before = set(REWARDS)
    yield
    for name in set(REWARDS) - before:
        del REWARDS._terms[name]


class TestExtension:
    def test_a_new_term_is_a_function_and_a_line_of_config(self, registered, make_env):
        @reward()
        def turning(context, *, scale: float = 1.0):
            return context.sensed.omega.abs() * scale

        config = load_nav()
        config.rewards = {"turning": RewardTermConfig(weight=-2.0, params={"scale": 0.5})}
        env = make_env(config)
        _, rewards, *_ = env.step(torch.tensor([[0.0, 0.0, 1.0]]).repeat(8, 1))
        assert torch.allclose(rewards, -env.sensed.omega.abs() * config.reward_scale)
        assert rewards.min() < -0.05

    @pytest.mark.parametrize(
        ("function", "wrong"),
        {
            "wide": (lambda context: context.action, r"returned \(8, 3\), not \(8,\)"),
            "column": (lambda context: context.action[:, :1], r"returned \(8, 1\), not \(8,\)"),
            "number": (lambda context: 1.0, r"returned float, not \(8,\)"),
            "misspelt": (lambda context: context.acton, r"raised AttributeError: .*'acton' \(test_rewards\.py:\d+\)"),
            "shapes": (lambda context: context.action @ context.action, r"raised RuntimeError: .*\(test_rewards\.py"),
        }.values(),
    )
    def test_one_that_goes_wrong_is_named(self, registered, make_env, function, wrong):
        function.__name__ = "mine"
        reward()(function)
        config = load_nav()
        config.rewards["mine"] = RewardTermConfig(weight=1.0)
        with pytest.raises(TermError, match=f"reward term 'mine' {wrong}"):
            make_env(config).step(torch.zeros(8, 3))

    def test_its_signature_is_checked(self, registered):
        def wrong(state):
            return state

        with pytest.raises(TypeError, match=r"'wrong' must take \(context"):
            reward()(wrong)

    def test_one_weight_a_room(self, make_env):
        env, plain = make_env(), make_env()
        weights = plain.reward.weights
        env.reward.weights = torch.stack([weights * (1 + room) for room in range(8)])
        action = torch.full((8, 3), 0.5)
        _, rewards, *_ = env.step(action)
        _, once, *_ = plain.step(action)
        assert torch.allclose(rewards, once * torch.arange(1, 9), rtol=1e-5)

    @pytest.mark.parametrize("window", [1, 7, 40])
    def test_a_window_looks_back_so_far_within_the_episode(self, registered, make_env, window):
        """Where the robot was any number of steps ago, against a record kept here; over several episodes."""
        wrong = []

        @reward(trail="window")
        def record(context, *, window: int = 25):
            for k in range(window + 1):
                old = context.step >= k
                then = torch.stack([places[-1 - k] if len(places) > k else places[0] for places in history])
                if not torch.equal(context.place_before(k)[old], then[old]):
                    wrong.append((k, context.step.tolist()))
            return torch.zeros(len(context.step))

        config = load_nav(episode_length=6.0)
        config.rewards = {"record": RewardTermConfig(weight=1.0, params={"window": window})}
        env = make_env(config, num_envs=6)
        history = [[env.truth.pose[i, :2].clone()] for i in range(6)]
        read = env._reward_context

        def note(cause):
            for i, places in enumerate(history):
                places.append(env.truth.pose[i, :2].clone())
            return read(cause)

        env._reward_context = note
        generator = torch.Generator().manual_seed(0)
        ended = 0
        for _ in range(100):
            _, _, dones, _ = env.step((torch.rand(6, 3, generator=generator) * 2 - 1) * 0.5)
            for i in dones.nonzero()[:, 0].tolist():
                history[i] = [env.truth.pose[i, :2].clone()]
            ended += int(dones.sum())
        assert ended >= 6
        assert not wrong


def test_reward_is_the_scaled_weighted_sum(make_env):
    config = load_nav()
    env = make_env(config)
    action = torch.tensor([[0.3, -0.2, 0.5]]).repeat(8, 1)
    before = env.sensed.goal_distance.clone()
    _, rewards, dones, _ = env.step(action)
    assert not dones.any()
    s = env.sensed
    expected = (
        2.0 * (before - s.goal_distance)
        + 0.05 * s.goal_bearing[:, 0] * (s.vel_body[:, 0].abs() / 1.5).clamp(max=1)
        - 0.02
        - 0.08 * ((0.25 - s.scan.amin(-1)) / 0.25).clamp(0, 1)
        - 0.02 * (0.3**2 + 0.2**2 + 0.5**2)
    )
    assert torch.allclose(rewards, config.reward_scale * expected, atol=1e-6)
    assert math.isclose(float(env.episode.reward_sums.sum()), float(rewards.sum()) / config.reward_scale, rel_tol=1e-4)
