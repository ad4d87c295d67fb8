import copy
from pathlib import Path

import pytest
import torch
from rsl_rl.algorithms import PPO as RslPPO
from rsl_rl.storage import RolloutStorage

from orchestrator.job.ppo import PPO
from orchestrator.job.runner import Runner
from orchestrator.job.schedule import LEARNING_RATE_MAX, LEARNING_RATE_MIN


@pytest.fixture
def runner(tmp_path: Path, small_config):
    def make(*overrides: str) -> Runner:
        return Runner(small_config(*overrides), seed=0, folder=tmp_path, threads=1)

    return make


def collect(runner: Runner, algorithm=None) -> None:
    algorithm = algorithm or runner.algorithm
    observation = runner.env.get_observations()
    with torch.inference_mode():
        for _ in range(runner.config.algorithm.num_steps_per_env):
            observation, rewards, dones, extras = runner.env.step(algorithm.act(observation))
            algorithm.process_env_step(observation, rewards, dones, extras)
        algorithm.compute_returns(observation)


def parent_of(ours: PPO, storage: RolloutStorage, **settings) -> RslPPO:
    return RslPPO(copy.deepcopy(ours.actor), copy.deepcopy(ours.critic), storage, **settings)


SETTINGS = {
    "num_learning_epochs": 5,
    "num_mini_batches": 4,
    "clip_param": 0.2,
    "gamma": 0.99,
    "lam": 0.95,
    "value_loss_coef": 1.0,
    "entropy_coef": 0.005,
    "learning_rate": 3e-4,
    "max_grad_norm": 1.0,
    "desired_kl": 0.01,
}
LIKE_THEIRS = (
    "algorithm.gamma=0.99",
    "algorithm.entropy_coef=0.005",
    "algorithm.desired_kl=0.01",
    "algorithm.desired_kl_end=0.01",
)


class TestAgainstRslRl:
    @pytest.mark.parametrize("schedule", ["adaptive", "fixed"])
    @pytest.mark.parametrize("clipped", [True, False])
    def test_same_rollout_gives_the_same_networks(self, runner, schedule, clipped):
        ours = runner(
            "algorithm.symmetry=none",
            "algorithm.bootstrap=current",
            f"algorithm.schedule={schedule}",
            f"algorithm.use_clipped_value_loss={clipped}",
            *LIKE_THEIRS,
        )
        theirs_runner = runner("algorithm.symmetry=none", "algorithm.bootstrap=current")
        shape = theirs_runner.algorithm.storage
        theirs = parent_of(
            ours.algorithm,
            RolloutStorage("rl", 16, shape.num_transitions_per_env, ours.env.get_observations(), [3], "cpu"),
            schedule=schedule,
            use_clipped_value_loss=clipped,
            **SETTINGS,
        )
        for _ in range(3):
            torch.manual_seed(5)
            collect(ours)
            losses = ours.algorithm.update()
            torch.manual_seed(5)
            collect(theirs_runner, theirs)
            expected = theirs.update()
            assert losses["Loss/value"] == pytest.approx(expected["value"], rel=1e-4)
            assert losses["Loss/surrogate"] == pytest.approx(expected["surrogate"], abs=1e-5)
            assert losses["Loss/entropy"] == pytest.approx(expected["entropy"], rel=1e-5)
            assert ours.algorithm.learning_rate == pytest.approx(theirs.learning_rate, rel=1e-5)
            for mine, other in (
                *zip(ours.algorithm.actor.state_dict().values(), theirs.actor.state_dict().values(), strict=True),
                *zip(ours.algorithm.critic.state_dict().values(), theirs.critic.state_dict().values(), strict=True),
            ):
                torch.testing.assert_close(mine, other, atol=2e-5, rtol=1e-4)

    @pytest.mark.parametrize("groups", [["policy"], ["policy", "privileged"]])
    def test_same_rollout_gives_the_same_random_network_distillation(self, runner, groups):
        overrides = (
            "algorithm.symmetry=none",
            "algorithm.bootstrap=current",
            "algorithm/rnd=default",
            f"algorithm.rnd.obs_groups=[{','.join(groups)}]",
            "algorithm.rnd.weight=20",
            *LIKE_THEIRS,
        )
        ours, theirs_runner = runner(*overrides), runner(*overrides)
        steps = ours.algorithm.storage.num_transitions_per_env
        storage = RolloutStorage("rl", 16, steps, ours.env.get_observations(), [3], "cpu")
        theirs = parent_of(ours.algorithm, storage, **SETTINGS)
        theirs.rnd = copy.deepcopy(ours.algorithm.rnd)
        theirs.rnd.optimizer = torch.optim.Adam(theirs.rnd.predictor.parameters(), lr=1e-3)
        target = copy.deepcopy(theirs.rnd.target.state_dict())
        for _ in range(3):
            torch.manual_seed(5)
            collect(ours)
            losses = ours.algorithm.update()
            torch.manual_seed(5)
            collect(theirs_runner, theirs)
            expected = theirs.update()
            assert losses["Loss/rnd"] == pytest.approx(expected["rnd"], rel=1e-4)
            assert losses["Loss/value"] == pytest.approx(expected["value"], rel=1e-4)
            torch.testing.assert_close(
                ours.algorithm.intrinsic_rewards[-1], theirs.intrinsic_rewards, rtol=1e-4, atol=1e-6
            )
            for name in ("rnd", "actor", "critic"):
                mine, other = getattr(ours.algorithm, name).state_dict(), getattr(theirs, name).state_dict()
                for key, value in mine.items():
                    torch.testing.assert_close(value, other[key], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(dict(ours.algorithm.rnd.target.state_dict()), dict(target), atol=0, rtol=0)


class TestTrace:
    @pytest.mark.parametrize("schedule", ["adaptive", "fixed"])
    def test_kl_and_rate_of_every_mini_batch_under_both_schedules(self, runner, schedule):
        job = runner(f"algorithm.schedule={schedule}")
        collect(job)
        scalars = job.algorithm.update()
        trace = job.algorithm.trace
        assert trace.kl.shape == trace.learning_rate.shape == (20,)
        assert trace.kl[0] == pytest.approx(0.0, abs=1e-5)  # no step was taken yet
        assert scalars["PPO/kl_first"] == pytest.approx(trace.kl[0].item())
        assert scalars["PPO/kl_max"] == pytest.approx(trace.kl.max().item())
        assert scalars["PPO/kl_mean"] == pytest.approx(trace.kl.mean().item())
        assert scalars["PPO/kl_max"] > 1e-5
        assert (len(set(trace.learning_rate.tolist())) == 1) == (schedule == "fixed")
        assert scalars["Loss/learning_rate"] == pytest.approx(trace.learning_rate[-1].item())

    def test_rate_follows_the_kl_within_its_bounds(self, runner):
        algorithm = runner(*LIKE_THEIRS).algorithm
        rate = algorithm._lr
        for kl, start, expected in (
            (0.021, 3e-4, 2e-4),
            (0.0049, 3e-4, 4.5e-4),
            (0.01, 3e-4, 3e-4),
            (0.0, 3e-4, 3e-4),
            (1.0, 1.2e-5, LEARNING_RATE_MIN),
            (0.001, 0.9e-2, LEARNING_RATE_MAX),
        ):
            rate.fill_(start)
            algorithm._adapt(torch.tensor(kl))
            assert rate.item() == pytest.approx(expected, rel=1e-5)

    def test_a_rate_of_zero_learns_nothing(self, runner):
        job = runner("algorithm.learning_rate=0")
        before = [p.clone() for p in job.algorithm.actor.parameters()]
        collect(job)
        job.algorithm.update()
        assert all(torch.equal(a, b) for a, b in zip(before, job.algorithm.actor.parameters(), strict=True))
        assert job.algorithm.learning_rate == 0.0


class TestBootstrap:
    def test_a_time_out_is_worth_the_value_of_where_it_ended(self, runner):
        job = runner("task.episode_length=0.3", "task.goal_radius=0.01")  # everything times out at its third step
        job.env.restart()
        algorithm, observation = job.algorithm, job.env.get_observations()
        with torch.inference_mode():
            for _ in range(3):
                observation, rewards, dones, extras = job.env.step(torch.zeros(16, 3))
                algorithm.transition.observations = observation
                algorithm.transition.actions = torch.zeros(16, 3)
                algorithm.process_env_step(observation, rewards, dones, extras)
            assert extras["time_outs"].all()
            expected = rewards + job.config.algorithm.gamma * algorithm.critic(extras["final_obs"]).squeeze(-1)
        torch.testing.assert_close(algorithm.storage.rewards[2].squeeze(-1), expected)
        assert not torch.allclose(expected, rewards)


class TestRandomNetworkDistillation:
    def test_what_is_new_is_paid_in_the_returns_and_nowhere_else(self, runner):
        job, plain = runner("algorithm/rnd=default", "algorithm.rnd.weight=50"), runner()
        plain.algorithm.actor.load_state_dict(job.algorithm.actor.state_dict())
        plain.algorithm.critic.load_state_dict(job.algorithm.critic.state_dict())
        for each in (job, plain):
            torch.manual_seed(5)
            collect(each)
        paid = job.algorithm.intrinsic_rewards
        assert paid.min() > 0
        difference = job.algorithm.storage.rewards - plain.algorithm.storage.rewards
        torch.testing.assert_close(difference.squeeze(-1), paid, atol=1e-5, rtol=1e-5)
        logged, expected = job.env.pop_statistics(), plain.env.pop_statistics()
        assert logged == expected

    def test_it_is_paid_for_the_state_that_an_episode_ended_in(self, runner):
        job = runner("algorithm/rnd=default", "task.episode_length=0.3", "task.goal_radius=0.01")
        job.env.restart()
        algorithm, observation = job.algorithm, job.env.get_observations()
        with torch.inference_mode():
            for _ in range(3):
                observation, rewards, dones, extras = job.env.step(torch.zeros(16, 3))
                algorithm.transition.observations = observation
                algorithm.transition.actions = torch.zeros(16, 3)
                algorithm.process_env_step(observation, rewards, dones, extras)
            assert dones.all()
            state = extras["final_obs"]["policy"] / 1.01  # the normaliser knows nothing yet: deviation 1, and 0.01
            error = (algorithm.rnd.target(state) - algorithm.rnd.predictor(state)).norm(dim=1)
        weight = job.config.algorithm.rnd.weight * job.config.task.reward_scale
        torch.testing.assert_close(algorithm.intrinsic_rewards[2], weight * error)

    def test_what_was_seen_is_new_no_more(self, runner):
        job = runner("algorithm/rnd=default", "algorithm.learning_rate=0", "algorithm.rnd.learning_rate=3e-3")
        losses = []
        for _ in range(4):
            collect(job)
            losses.append(job.algorithm.update()["Loss/rnd"])
        assert losses[-1] < 0.5 * losses[0]


class TestSymmetry:
    def test_original_and_image_are_learned_from_equally_often(self, runner):
        job = runner("algorithm.symmetry=augmentation")
        collect(job)
        algorithm, storage = job.algorithm, job.algorithm.storage
        size = 16 * 16 // 4
        order = torch.arange(16 * 16)
        first, second = algorithm._gather(storage.observations.flatten(0, 1), order, size)
        actions = storage.actions.flatten(0, 1)
        image = actions * torch.tensor([1.0, -1.0, -1.0])
        torch.testing.assert_close(first[0]["actions"], torch.cat([actions[:32], image[32:64]]))
        torch.testing.assert_close(second[0]["actions"], torch.cat([actions[32:64], image[:32]]))
        assert first[0]["actor"].shape == (size, 78)
        for epoch in (first, second):
            for batch in epoch:
                assert len(batch["old_params"][0]) == size // 2

    def test_mirror_loss_makes_the_policy_equivariant(self, runner):
        def asymmetry(job: Runner) -> float:
            observations = job.env.get_observations()
            maps = job.env.mirror_maps()
            index, sign = maps["policy"]
            images = observations.clone()
            images["policy"] = observations["policy"][:, index] * sign
            with torch.no_grad():
                policy = job.algorithm.get_policy()
                return (policy(images) - policy(observations) * maps["actions"][1]).square().mean().item()

        job = runner(
            "algorithm.symmetry=mirror_loss",
            "algorithm.mirror_loss_coeff=100",
            "algorithm.schedule=fixed",
            "algorithm.learning_rate=3e-3",
        )
        torch.nn.init.orthogonal_(job.algorithm.actor.mlp[-1].weight, 1.0)
        before = asymmetry(job)
        for _ in range(3):
            collect(job)
            scalars = job.algorithm.update()
        assert asymmetry(job) < 0.5 * before
        assert scalars["Loss/mirror"] > 0
