"""The observation's terms, value by value, and where each may come from."""

import inspect
from dataclasses import replace

import pytest
import torch
from instants import sensed, truth
from navsetup import load_nav

from navtask.config import ObservationTermConfig
from navtask.errors import TermError
from navtask.nav.terms import OBSERVATIONS, deployable, sim_only


def value(name, *, sense=None, true=None, num=1):
    term = OBSERVATIONS[name]
    sources = (sensed(num, **(sense or {})),)
    if term.group == "privileged":
        sources += (truth(num, **(true or {})),)
    return term.function(*sources)


RANGES = torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]])

# Every row of the table: term, width, group, what is sensed, what is true, what must come out.
ROWS = [
    ("lidar", 72, "policy", {"scan": RANGES}, {}, (RANGES / 8).tolist()[0]),
    # Scaled distance, then sine, then cosine: the goal 30 degrees to the left.
    (
        "goal_polar",
        3,
        "policy",
        {"goal_distance": torch.tensor([3.0]), "goal_bearing": torch.tensor([[0.866, 0.5]])},
        {},
        [0.5, 0.5, 0.866],
    ),
    ("vel_body", 2, "policy", {"vel_body": torch.tensor([[1.0, -0.5]])}, {}, [0.5, -0.25]),
    ("omega", 1, "policy", {"omega": torch.tensor([-1.0])}, {}, [-0.25]),
    ("action_prev", 3, "policy", {"action": torch.tensor([[0.1, -0.2, 0.3]])}, {}, [0.1, -0.2, 0.3]),
    ("truth_clearance", 1, "privileged", {}, {"clearance": torch.tensor([2.0])}, [0.25]),
    ("truth_scan_clean", 72, "privileged", {"scan": RANGES * 0}, {"scan_clean": RANGES}, (RANGES / 8).tolist()[0]),
    ("truth_contact", 1, "privileged", {}, {"touching": torch.tensor([True])}, [1.0]),
    ("truth_contact", 1, "privileged", {}, {"touching": torch.tensor([False])}, [0.0]),
    ("truth_nearest_dir", 2, "privileged", {}, {"nearest": torch.tensor([[0.6, -0.8]])}, [0.6, -0.8]),
]


@pytest.mark.parametrize(("name", "width", "group", "sense", "true", "expected"), ROWS)
def test_row(name, width, group, sense, true, expected):
    term = OBSERVATIONS[name]
    assert term.group == group
    assert term.width_for(load_nav()) == width
    assert value(name, sense=sense, true=true)[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_table_is_complete():
    assert {row[0] for row in ROWS} == set(OBSERVATIONS) == set(load_nav().observations)


def test_every_term_is_float32_and_one_row_a_room():
    for name in OBSERVATIONS:
        out = value(name, num=5)
        assert out.dtype == torch.float32
        assert out.shape[0] == 5
        assert out.dim() == 2


class TestGroups:
    def test_widths(self, make_env):
        observation = make_env(privileged=True).get_observations()
        assert set(observation.keys()) == {"policy", "privileged"}
        assert observation["policy"].shape == (8, 78)
        assert observation["privileged"].shape == (8, 76)

    def test_without_privileged_there_is_only_policy(self, make_env):
        assert set(make_env().get_observations().keys()) == {"policy"}

    def test_action_prev_is_off_by_default(self):
        off = [name for name, term in load_nav().observations.items() if not term.enabled]
        assert off == ["action_prev"]

    def test_a_term_is_switched_off_by_config(self, make_env):
        config = load_nav()
        config.observations["omega"].enabled = False
        assert make_env(config).get_observations()["policy"].shape[1] == 77

    def test_no_setting_names_a_group(self):
        assert set(inspect.signature(ObservationTermConfig).parameters) == {"enabled", "params"}

    def test_scaled_to_order_one(self, make_env):
        env = make_env(num_envs=64, privileged=True)
        generator = torch.Generator().manual_seed(0)
        for _ in range(60):
            observation, *_ = env.step(torch.rand(64, 3, generator=generator) * 2 - 1)
            for group in observation.values():
                assert group.abs().max() < 3.0

    def test_history_stacks_oldest_first_and_starts_filled(self, make_env):
        config = load_nav()
        env, plain = make_env(replace(config, history=3)), make_env(config)
        frames = [plain.get_observations()["policy"]]
        assert torch.equal(env.get_observations()["policy"], frames[0].repeat(1, 3))
        action = torch.full((8, 3), 0.2)
        for _ in range(4):
            observation, *_ = env.step(action)
            frames.append(plain.step(action)[0]["policy"])
        assert torch.equal(observation["policy"], torch.cat(frames[-3:], dim=-1))


@pytest.fixture
def registered():
    """What a test registers is gone after it."""
    before = dict(OBSERVATIONS)
    yield
    for name in set(OBSERVATIONS) - set(before):
        del OBSERVATIONS._terms[name]


class TestProvenance:
    def test_a_deployable_term_cannot_take_the_truth(self, registered):
        def peeking(sensed, truth):
            return truth.clearance.unsqueeze(-1)

        with pytest.raises(TypeError, match=r"peeking.*must take \(sensed"):
            deployable(width=1, mirror=(1,))(peeking)
        assert "peeking" not in OBSERVATIONS

    def test_nor_under_another_name_nor_by_position(self, registered):
        def renamed(truth):
            return truth

        def third(sensed, *rest):
            return sensed

        def catching(sensed, extra=None):
            return sensed

        for function in (renamed, third, catching):
            with pytest.raises(TypeError):
                deployable(width=1, mirror=(1,))(function)

    def test_a_sim_only_term_must_say_that_it_takes_the_truth(self, registered):
        def modest(sensed):
            return sensed.scan

        with pytest.raises(TypeError, match="modest"):
            sim_only(width=1, mirror=(1,))(modest)

    def test_what_a_deployable_term_is_handed_holds_no_truth(self, make_env):
        env = make_env()
        hidden = {"pose", "clearance", "nearest", "touching", "scan_clean", "truth"}
        assert not hidden & set(vars(env.sensed))

    def test_with_noise_the_deployable_scan_is_not_the_clean_one(self, make_env):
        config = load_nav()
        config.lidar.noise_std = 0.1
        env = make_env(config, privileged=True)
        observation = env.get_observations()
        assert not torch.equal(observation["policy"][:, :72], observation["privileged"][:, 1:73])
        assert torch.equal(
            make_env(privileged=True).get_observations()["privileged"][:, 1:73], observation["privileged"][:, 1:73]
        )


class TestExtension:
    def test_a_new_term_is_a_function_and_a_line_of_config(self, registered, make_env):
        @deployable(width=1, mirror=(1,))
        def speed(sensed, *, scale: float = 1.0):
            return sensed.vel_body.norm(dim=-1, keepdim=True) * scale

        config = load_nav()
        config.observations["speed"] = ObservationTermConfig(params={"scale": 2.0})
        env = make_env(config)
        observation, *_ = env.step(torch.tensor([[1.0, 0.0, 0.0]]).repeat(8, 1))
        assert observation["policy"].shape == (8, 79)
        assert torch.equal(observation["policy"][:, -1], env.sensed.vel_body.norm(dim=-1) * 2)

    def test_widths_are_checked_against_the_declaration(self, registered, make_env):
        @deployable(width=2, mirror=(1, 1))
        def liar(sensed):
            return sensed.omega.unsqueeze(-1)

        config = load_nav()
        config.observations["liar"] = ObservationTermConfig()
        with pytest.raises(TermError, match=r"observation term 'liar' returned \(8, 1\), not \(8, 2\)"):
            make_env(config).step(torch.zeros(8, 3))

    def test_one_that_raises_is_named(self, registered, make_env):
        @deployable(width=1, mirror=(1,))
        def slip(sensed):
            return sensed.speed

        config = load_nav()
        config.observations["slip"] = ObservationTermConfig()
        with pytest.raises(TermError, match=r"observation term 'slip' raised AttributeError: .*'speed' \(test_obs"):
            make_env(config).step(torch.zeros(8, 3))

    def test_a_name_is_taken_once(self, registered):
        def omega(sensed):
            return sensed.omega

        with pytest.raises(ValueError, match="'omega' is registered already"):
            deployable(width=1, mirror=(1,))(omega)


class TestMirror:
    """A reflected world looks like the reflected observation: shown in rooms that really are mirrored."""

    @pytest.mark.parametrize("history", [1, 2])
    def test_equivariance(self, make_env, history):
        from navsetup import draw, use_rooms

        config = load_nav(history=history)
        config.observations["action_prev"].enabled = True
        rooms = draw(config.rooms, 16)
        env, mirrored = (make_env(config, num_envs=16, privileged=True) for _ in range(2))
        use_rooms(env, rooms)
        reflected = draw(config.rooms, 16)
        for places in (reflected.centre, reflected.goal, reflected.start[:, :2], reflected.axis):
            places[..., 1] *= -1
        reflected.start[:, 2] *= -1
        # A box's yaw lies in [0, pi): turned by half a turn it is the same box.
        flip = reflected.axis[..., 1] < 0
        reflected.axis[flip] *= -1
        use_rooms(mirrored, reflected)
        maps = env.mirror_maps()
        generator = torch.Generator().manual_seed(1)
        for _ in range(12):
            one, other = env.get_observations(), mirrored.get_observations()
            for group in one.keys():  # noqa: SIM118
                index, sign = maps[group]
                error = (one[group][:, index] * sign - other[group]).abs()
                assert (error > 1e-3).float().mean() < 1e-3  # beams that graze an edge
                assert error.median() < 1e-6
            action = torch.rand(16, 3, generator=generator) * 2 - 1
            index, sign = maps["actions"]
            _, reward, done, _ = env.step(action)
            _, mirrored_reward, mirrored_done, _ = mirrored.step(action[:, index] * sign)
            assert torch.allclose(reward, mirrored_reward, atol=1e-4)
            assert torch.equal(done, mirrored_done)
