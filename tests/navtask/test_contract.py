"""What every task guarantees, whatever it is about: one suite over all of them."""

import math

import numpy as np
import pytest
import torch
from taskcases import CASES, actions, assert_same, rollout


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


class TestDefinition:
    def test_is_what_the_environment_does(self, case):
        env, definition = case.make(), case.definition
        assert definition.name == case.name
        assert tuple(env.causes) == tuple(definition.causes)
        assert set(env.get_observations().keys()) == set(definition.groups)
        assert len(env.action_names) == env.num_actions
        assert hasattr(env, "mirror_maps") == definition.symmetric

    def test_is_what_the_evaluator_measures(self, case):
        config = case.config(4)
        definition = case.definition
        world = getattr(config, definition.world)
        evaluator = definition.make_evaluator(config, world, 8)
        measured = evaluator.run(lambda observation: torch.zeros(8, evaluator.env.num_actions))
        assert tuple(measured) == tuple(definition.metrics)
        assert set(definition.better) <= set(definition.metrics)
        assert measured["success_rate"].shape == (8,)
        assert 0.0 <= evaluator.unreachable_share <= 1.0
        definition.validate_world(world, "evaluation.frozen.x")

    def test_terms_lie_one_after_the_other_and_fill_the_observation(self, case):
        env = case.make()
        observation = env.get_observations()
        for group, shown in env.terms().items():
            ends = [term.start + term.width for term in shown]
            assert [term.start for term in shown] == [0, *ends[:-1]]
            assert ends[-1] == observation[group].shape[-1]
        named = {axis for shown in env.terms().values() for term in shown for axis in term.answers}
        assert named == set(env.action_names)

    def test_a_mirror_image_mirrored_is_the_original(self, case):
        env = case.make()
        index, sign = env.mirror_maps()["policy"]
        observation = env.get_observations()["policy"]
        image = observation[..., index] * sign
        assert torch.equal(image[..., index] * sign, observation)
        assert not torch.equal(image, observation)


class TestInstants:
    def test_in_rooms_that_go_on_the_final_observation_is_the_returned_one(self, case):
        env = case.make(case.config(10), num_envs=64)
        ended = 0
        for action in actions(env, 25):
            observation, _, dones, extras = env.step(action)
            for group in case.definition.groups:
                assert torch.equal(observation[group][~dones], extras["final_obs"][group][~dones])
            assert (observation["policy"][dones] != extras["final_obs"]["policy"][dones]).any(-1).all()
            ended += int(dones.sum())
        assert ended >= 128

    def test_the_pending_action_is_not_in_the_observation(self, case):
        """Two copies in one state observe the same, whatever each is about to do."""
        one, other = case.make(), case.make()
        given = actions(one, 1)[0]
        one.step(given)
        other.step(given)
        assert torch.equal(one.get_observations()["policy"], other.get_observations()["policy"])
        one.step(torch.full_like(given, 0.5))
        other.step(torch.full_like(given, -0.5))
        assert not torch.equal(one.get_observations()["policy"], other.get_observations()["policy"])

    def test_returned_tensors_never_change_later(self, case):
        env = case.make(case.config(5), num_envs=16)
        kept, copies = [], []

        def keep(*tensors):
            kept.extend(tensors)
            copies.extend(t.clone() for t in tensors)

        keep(*env.get_observations().values())
        for action in actions(env, 12):
            observation, rewards, dones, extras = env.step(action)
            keep(*observation.values(), *extras["final_obs"].values(), rewards, dones)
            keep(extras["time_outs"], extras["terminated"], extras["success"])
        env.restart()
        assert all(map(torch.equal, kept, copies))


class TestActions:
    def test_are_clipped_for_body_and_reward_alike(self, case):
        wild, tame = case.make(), case.make()
        given = actions(wild, 12) * 5
        assert_same(rollout(wild, given), rollout(tame, given.clamp(-1, 1)))

    def test_the_clipped_share_is_counted_by_axis(self, case):
        env = case.make(num_envs=10)
        for k in range(10):
            action = torch.zeros(10, env.num_actions)
            action[:, 0] = 1.0  # on the limit is not clipped
            action[:3, 1] = -1.5
            action[:, 2] = 2.0 if k < 5 else 0.0
            env.step(action)
        told = {k.removeprefix("Policy/action_saturation_"): v for k, v in env.pop_statistics().items() if "sat" in k}
        expected = dict.fromkeys(env.action_names, 0.0)
        expected[env.action_names[1]], expected[env.action_names[2]] = 0.3, 0.5
        assert told == pytest.approx(expected)

    def test_are_not_changed_in_place(self, case):
        env = case.make()
        given = actions(env, 1)[0] * 3
        kept = given.clone()
        env.step(given)
        assert torch.equal(given, kept)

    def test_of_the_wrong_shape_are_refused(self, case):
        env = case.make()
        with pytest.raises(ValueError, match=rf"not \(8, {env.num_actions}\)"):
            env.step(torch.zeros(8, env.num_actions + 1))


class TestResets:
    def test_same_seed_same_rollout_other_seed_another(self, case):
        config = case.config(10)
        envs = [case.make(config, num_envs=16, seed=seed) for seed in (3, 3, 4)]
        one, same, other = (rollout(env, actions(env, 30)) for env in envs)
        assert_same(one, same)
        assert not torch.equal(one[0]["obs/policy"], other[0]["obs/policy"])

    def test_episodes_of_a_room_differ(self, case):
        env = case.make(case.config(2), num_envs=16)
        seen = [env.scene()["goal"]]
        for _ in range(4):
            rollout(env, torch.zeros(2, 16, env.num_actions))
            seen.append(env.scene()["goal"])
        assert (env.episode.number == 4).all()
        assert len(torch.unique(torch.cat(seen), dim=0)) == 5 * 16

    def test_every_field_of_an_episode_is_reset(self, case):
        """Whatever a field held, also what is not a number: after a reset it is as in a task that was never used."""
        config = case.config(2)
        used, fresh = case.make(config), case.make(config)
        for name, tensor in used.episode.tensors().items():
            if name not in ("number", "step", "age"):
                tensor.fill_(math.nan if tensor.is_floating_point() else 7)
        used.episode.age.fill_(used.max_episode_length)
        used.step(torch.zeros(8, used.num_actions))
        for name, tensor in used.episode.tensors().items():
            if name != "number" and name not in ("trail", "frames"):
                assert torch.equal(tensor, fresh.episode.tensors()[name]), name
            assert torch.isfinite(tensor.double()).all(), name

    def test_nothing_of_an_episode_lives_on_in_the_next(self, case):
        """Two tasks with different pasts, then the same room's next episode: the same from there on, bit for bit."""
        config = case.config(4)
        one, other = case.make(config, num_envs=64), case.make(config, num_envs=64)
        rollout(one, actions(one, 4) * 3)
        rollout(other, torch.zeros(4, 64, other.num_actions))
        together = (one.episode.number == 1) & (other.episode.number == 1)
        together &= (one.episode.step == 0) & (other.episode.step == 0)
        assert together.sum() > 16
        for group in case.definition.groups:
            now, then = one.get_observations()[group], other.get_observations()[group]
            assert torch.equal(now[together], then[together])
        given = actions(one, 4, seed=9)
        assert_same(rollout(one, given), rollout(other, given), together)

    def test_restart_begins_again(self, case):
        env = case.make(case.config(10), num_envs=16)
        given = actions(env, 25)
        first = rollout(env, given)
        env.restart()
        assert_same(rollout(env, given), first)


class TestEnds:
    def test_causes_are_exclusive_and_shares_sum_to_one(self, case):
        env = case.make(case.config(30), num_envs=256)
        ended = 0
        for action in actions(env, 60):
            _, _, dones, extras = env.step(action)
            assert torch.equal(dones, extras["terminated"] | extras["time_outs"])
            assert not (extras["terminated"] & extras["time_outs"]).any()
            assert not (extras["success"] & ~extras["terminated"]).any()
            ended += int(dones.sum())
        shares = {k: v for k, v in env.pop_statistics().items() if k.startswith("Episode_Termination/")}
        assert ended > 256
        assert list(shares) == [f"Episode_Termination/{cause}" for cause in env.causes]
        assert sum(shares.values()) == pytest.approx(1.0)
        assert sum(share > 0 for share in shares.values()) >= 2

    def test_the_time_limit_alone_is_no_termination(self, case):
        env = case.make(case.config(5))
        for k in range(5):
            _, _, dones, extras = env.step(torch.zeros(8, env.num_actions))
            going = ~extras["terminated"]
            assert torch.equal(extras["time_outs"], going if k == 4 else torch.zeros_like(going))
        assert extras["time_outs"].any()
        assert dones.all()

    def test_one_diverged_room_is_ended_reset_and_counted_and_no_other_notices(self, case):
        env, healthy = case.make(), case.make()
        given = actions(env, 12) * 0.3
        for action in given[:4]:
            env.step(action)
            healthy.step(action)
        bad = torch.arange(8) == 5
        env.physics.reset(bad, torch.full_like(env.physics.qpos, math.nan))
        (after,), (expected,) = rollout(env, given[4:5]), rollout(healthy, given[4:5])
        assert_same([after], [expected], ~bad)
        assert after["done"][5]
        assert after["terminated"][5]
        assert not after["success"][5]
        for value in after.values():
            assert torch.isfinite(value).all()
        assert_same(rollout(env, given[5:]), rollout(healthy, given[5:]), ~bad)
        statistics = env.pop_statistics()
        assert statistics["Episode_Termination/diverged"] > 0
        assert all(map(math.isfinite, statistics.values()))

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_an_action_that_is_no_number_ends_its_own_room_only(self, case, value):
        env, healthy = case.make(), case.make()
        given = actions(env, 6) * 0.3
        broken = given.clone()
        broken[2, 4, 1] = value
        after, expected = rollout(env, broken), rollout(healthy, given)
        assert_same(after, expected, torch.arange(8) != 4)
        assert after[2]["terminated"][4]
        for step in after:
            for tensor in step.values():
                assert torch.isfinite(tensor).all()


class TestAccounting:
    def test_returns_lengths_and_terms_are_those_of_the_episodes_that_ended(self, case):
        config = case.config(20)
        env = case.make(config, num_envs=64)
        returns, lengths = torch.zeros(64), torch.zeros(64)
        ended_returns, ended_lengths = [], []
        for action in actions(env, 50):
            _, rewards, dones, _ = env.step(action)
            returns += rewards / config.reward_scale
            lengths += 1
            ended_returns += returns[dones].tolist()
            ended_lengths += lengths[dones].tolist()
            returns[dones] = 0
            lengths[dones] = 0
        statistics = env.pop_statistics()
        assert statistics["Train/mean_reward"] == pytest.approx(np.mean(ended_returns), rel=1e-4)
        assert statistics["Train/mean_episode_length"] == pytest.approx(np.mean(ended_lengths))
        terms = {k.split("/")[1]: v for k, v in statistics.items() if k.startswith("Episode_Reward/")}
        assert list(terms) == list(config.rewards)
        assert sum(terms.values()) == pytest.approx(statistics["Train/mean_reward"], rel=1e-5)

    def test_taking_them_begins_anew(self, case):
        env = case.make(case.config(5))
        rollout(env, actions(env, 10))
        assert "Train/mean_reward" in env.pop_statistics()
        assert "Train/mean_reward" not in env.pop_statistics()

    def test_ages_are_spread_and_those_first_episodes_left_out(self, case):
        env = case.make(case.config(20), num_envs=256)
        env.spread_ages()
        ages = env.episode_length_buf.clone()
        assert ages.min() >= 0
        assert ages.max() < env.max_episode_length
        assert torch.histc(ages.float(), 4, 0, env.max_episode_length).min() > 256 / 8
        ended, counted = torch.zeros(256, dtype=torch.int64), 0
        for _ in range(env.max_episode_length):
            *_, dones, extras = env.step(torch.zeros(256, env.num_actions))
            assert extras["time_outs"].sum() < 256 / 4, "no burst"
            counted += int((dones & ((ended > 0) | (ages == 0))).sum())
            ended += dones
        assert env.pop_statistics().get("Train/episodes", 0) == counted < ended.sum()

    def test_ages_depend_on_the_room_alone(self, case):
        many, few, shifted = case.make(num_envs=64), case.make(num_envs=8), case.make(num_envs=8, first_room=20)
        for env in (many, few, shifted):
            env.spread_ages()
        assert torch.equal(many.episode_length_buf[:8], few.episode_length_buf)
        assert torch.equal(many.episode_length_buf[20:28], shifted.episode_length_buf)


class TestIndependence:
    def test_a_room_does_not_depend_on_how_many_there_are(self, case):
        config = case.config(20)
        many, few = case.make(config, num_envs=64), case.make(config, num_envs=8)
        of_many, of_few = rollout(many, actions(many, 45)), rollout(few, actions(few, 45))
        assert sum(int(step["done"].sum()) for step in of_few) >= 8
        assert_same(of_many, of_few, slice(8), slice(None))

    def test_nor_on_where_the_batch_begins(self, case):
        config = case.config(20)
        many, part = case.make(config, num_envs=32), case.make(config, num_envs=8, first_room=16)
        given = actions(many, 45)
        assert_same(rollout(many, given), rollout(part, given[:, 16:24]), slice(16, 24), slice(None))

    def test_threads_change_nothing(self, case):
        config = case.config(20)
        one, three = (case.make(config, num_envs=32, threads=threads) for threads in (1, 3))
        assert_same(rollout(one, actions(one, 30)), rollout(three, actions(three, 30)))


class TestExactResumption:
    def test_goes_on_exactly_from_a_state(self, case, tmp_path):
        config = case.config(20)
        env = case.make(config, num_envs=32)
        env.spread_ages()
        rollout(env, actions(env, 17))
        torch.save(env.state(), tmp_path / "state.pt")
        now = env.get_observations()
        given = actions(env, 30, seed=1)
        expected, statistics = rollout(env, given), env.pop_statistics()
        state = torch.load(tmp_path / "state.pt", weights_only=True)
        for each in (env, case.make(config, num_envs=32)):
            each.load(state)
            for group in case.definition.groups:
                assert torch.equal(each.get_observations()[group], now[group])
            assert_same(rollout(each, given), expected)
            assert each.pop_statistics() == statistics


class TestWithoutAutoReset:
    def test_each_room_has_one_episode_and_then_stands_still(self, case):
        env = case.make(case.config(20), num_envs=64, auto_reset=False)
        ended = torch.zeros(64, dtype=torch.int64)
        stopped = env.physics.qpos.clone()
        for action in actions(env, 30):
            over = ended > 0
            observation, rewards, dones, extras = env.step(action)
            assert (rewards[over] == 0).all()
            assert torch.equal(env.physics.qpos[over], stopped[over])
            assert torch.equal(env.active, ended + dones == 0)
            for group in case.definition.groups:
                assert torch.equal(observation[group], extras["final_obs"][group])
            ended += dones
            stopped[dones] = env.physics.qpos[dones]
        assert (ended == 1).all()
        statistics = env.pop_statistics()
        assert sum(v for k, v in statistics.items() if "Termination" in k) == pytest.approx(1.0)
        assert (env.episode.number == 0).all()

    def test_until_its_end_an_episode_is_the_same_as_with_it(self, case):
        config = case.config(20)
        one, other = case.make(config, num_envs=32), case.make(config, num_envs=32, auto_reset=False)
        with_it, without = rollout(one, actions(one, 20)), rollout(other, actions(other, 20))
        running = torch.ones(32, dtype=torch.bool)
        for a, b in zip(with_it, without, strict=True):
            for name in ("reward", "done", "time_outs", "final/policy"):
                assert torch.equal(a[name][running], b[name][running]), name
            running &= ~a["done"]
