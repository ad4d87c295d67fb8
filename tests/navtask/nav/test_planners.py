"""The classical planners: what they read, the geometry that they reckon with, and how they fare."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from navsetup import load_nav, load_rooms, rooms_by_hand, use_rooms
from tensordict import TensorDict

from navtask.config import ObservationTermConfig
from navtask.errors import ConfigError
from navtask.nav.env import NavEnv
from navtask.nav.planners import PLANNERS, DynamicWindow, Reading, Straight, WindowSettings, arcs, nearest
from navtask.nav.robot import ROBOT
from navtask.nav.task import Nav


def drive(env, policy, steps):
    """How the first episodes end, (N, causes) bool, within so many steps."""
    ended = torch.zeros(env.num_envs, len(env.causes), dtype=torch.bool)
    observation = env.get_observations()
    for _ in range(steps):
        observation, _, dones, _ = env.step(policy(observation))
        ended |= env._books.cause & dones.unsqueeze(-1)
    return {name: ended[:, k] for k, name in enumerate(env.causes)}


class TestReading:
    @pytest.fixture(params=[1, 3])
    def env(self, request):
        config = load_nav(history=request.param)
        # Terms that planners don't look at, before and between those that they do.
        terms = {"action_prev": ObservationTermConfig(), **config.observations}
        terms["action_prev"].enabled = True
        env = NavEnv(replace(config, observations=terms), num_envs=20, seed=0)
        generator = torch.Generator().manual_seed(0)
        for _ in range(8):
            env.step(2 * torch.rand(20, 3, generator=generator) - 1)
        return env

    def test_what_it_finds_is_what_was_sensed(self, env):
        reading, observation = Reading(env.config), env.get_observations()
        sensed = env.sensed
        goal = sensed.goal_distance.unsqueeze(-1) * sensed.goal_bearing
        assert torch.allclose(reading.goal(observation), goal, atol=1e-5)
        velocity = torch.cat([sensed.vel_body, sensed.omega.unsqueeze(-1)], -1)
        assert torch.allclose(reading.velocity(observation), velocity, atol=1e-5)
        points = reading.points(observation)
        within = sensed.scan < sensed.max_range
        assert within.any()
        assert not within.all()
        assert torch.allclose(points.norm(dim=-1)[within], sensed.scan[within], atol=1e-5)
        assert (points.norm(dim=-1)[~within] > 100).all()
        assert (points[:, 18, 1] > 0).all(), "a quarter of the way round is to the left"

    @pytest.mark.parametrize("term", ["lidar", "goal_polar", "vel_body", "omega"])
    def test_what_it_needs_must_be_shown(self, term):
        config = load_nav()
        terms = config.observations | {term: ObservationTermConfig(enabled=False)}
        for planner in PLANNERS.values():
            with pytest.raises(ConfigError, match=f"task.observations.{term}.enabled=False: expected true"):
                planner(replace(config, observations=terms))


class TestGeometry:
    def test_arcs_are_where_small_steps_lead(self):
        rng = np.random.default_rng(0)
        velocity = torch.tensor(rng.uniform(-1.5, 1.5, (2, 5, 3)))
        velocity[0, 0, 2] = 0
        time = torch.tensor([0.1, 0.5, 1.3], dtype=torch.float64)
        found = arcs(velocity, time)
        for room in range(2):
            for k in range(5):
                vx, vy, omega = velocity[room, k].tolist()
                for i, t in enumerate(time.tolist()):
                    yaw = omega * (np.arange(20_000) + 0.5) * t / 20_000
                    x = np.mean(np.cos(yaw) * vx - np.sin(yaw) * vy) * t
                    y = np.mean(np.sin(yaw) * vx + np.cos(yaw) * vy) * t
                    assert found[room, k, i].tolist() == pytest.approx([x, y], abs=1e-6)

    def test_nearest_is_the_least_of_all_distances(self):
        generator = torch.Generator().manual_seed(0)
        places, points = (torch.randn(*shape, generator=generator) for shape in ((3, 4, 5, 2), (3, 30, 2)))
        points[:, 7] = 1e3
        brute = torch.cdist(places.flatten(1, 2), points).amin(-1).view(3, 4, 5)
        assert torch.allclose(nearest(places, points), brute, atol=1e-3)


class TestStraight:
    def test_full_speed_at_the_goal(self):
        env = NavEnv(load_nav(), num_envs=50, seed=0)
        action = Straight(env.config)(env.get_observations())
        assert torch.allclose(action[:, :2].norm(dim=-1), torch.ones(50), atol=1e-5)
        yaw = env.truth.pose[:, 2]
        world = torch.stack(
            [action[:, 0] * yaw.cos() - action[:, 1] * yaw.sin(), action[:, 0] * yaw.sin() + action[:, 1] * yaw.cos()],
            -1,
        )
        to_goal = env.rooms.goal - env.truth.pose[:, :2]
        assert torch.allclose(world, to_goal / to_goal.norm(dim=-1, keepdim=True), atol=1e-4)

    def test_it_sees_nothing(self):
        env = NavEnv(load_nav(), num_envs=10, seed=0)
        observation = env.get_observations()
        blind = observation.clone()
        blind["policy"][:, :72] = 0
        assert torch.equal(Straight(env.config)(observation), Straight(env.config)(blind))


class TestDynamicWindow:
    @pytest.fixture
    def task(self):
        return load_nav(rooms=load_rooms(obstacles=[8, 8]))

    def ends(self, task, steps=200, **room):
        env = NavEnv(task, num_envs=1, seed=0)
        use_rooms(env, rooms_by_hand(task.rooms, **room))
        causes = drive(env, DynamicWindow(task), steps)
        return {name for name, hit in causes.items() if hit.any()}

    def test_it_goes_round_what_stands_in_the_way(self, task):
        for boxes in ([(0.0, 0.0, 0.3, 0.6, 0.3)], [(0.0, 0.1, 0.6, 0.15, 0.0), (1.0, -0.5, 0.3, 0.3, 0.5)]):
            room = {"start": [-3.0, 0.0, 2.0], "goal": [3.0, 0.0], "boxes": boxes}
            assert self.ends(task, 80, **room) == {"success"}

    def test_it_stops_before_a_wall_that_it_cannot_pass(self, task):
        """Driving at full speed towards a goal behind it."""
        across = [(0.0, y, 0.2, 1.3, 0.0) for y in (-3.75, -1.25, 1.25, 3.75)]
        assert self.ends(task, 199, start=[-4.0, 0.3, 0.0], goal=[4.0, 0.3], boxes=across) == set()

    def test_a_passage_little_wider_than_the_robot_is_taken(self, task):
        sides = [(0.0, 0.3 + 2.35, 0.2, 2.35, 0.0), (0.0, -0.3 - 2.35, 0.2, 2.35, 0.0)]
        assert self.ends(task, start=[-3.0, 0.8, 0.0], goal=[3.0, 0.0], boxes=sides) == {"success"}

    def test_commands_stay_within_the_window(self):
        env = NavEnv(load_nav(), num_envs=40, seed=0)
        settings = WindowSettings(acceleration=3.0)
        planner, observation = DynamicWindow(env.config, settings), env.get_observations()
        for _ in range(20):
            action = planner(observation)
            change = (action[:, :2] * ROBOT.v_max - env.sensed.vel_body).abs().max()
            assert change <= 3.0 * env.config.control_dt + 1e-4
            assert (action.abs() <= 1 + 1e-6).all()
            observation, *_ = env.step(action)

    def test_a_room_is_planned_for_alone_and_from_the_policy_group_only(self):
        env = NavEnv(load_nav("dense"), num_envs=21, seed=0, privileged=True)
        for _ in range(5):
            env.step(torch.ones(21, 3) * 0.2)
        observation, planner = env.get_observations(), DynamicWindow(env.config)
        together = planner(observation)
        for room in (0, 8, 20):
            alone = TensorDict({"policy": observation["policy"][room : room + 1]}, batch_size=[1])
            assert torch.equal(planner(alone)[0], together[room])

    def test_near_a_wall_it_may_leave(self, task):
        """Nearer than it would ever go by itself."""
        start = [5.0 - ROBOT.radius - 0.01, 0.0, 1.0]
        assert self.ends(task, 80, start=start, goal=[-3.0, 0.0]) == {"success"}


@pytest.mark.parametrize(
    ("kind", "straight", "window"), [("open", 0.7, 0.9), ("dense", 0.4, 0.85), ("barn", 0.3, 0.45)]
)
def test_on_frozen_rooms_planning_beats_driving_blind(kind, straight, window):
    config = load_nav()
    evaluator = Nav().make_evaluator(config, load_rooms(kind), 40)
    found = {name: evaluator.run(make(config))["success_rate"].mean().item() for name, make in PLANNERS.items()}
    assert 0 <= found["straight"] < straight
    assert window < found["dynamic_window"] <= 1
    assert found["dynamic_window"] > found["straight"] + 0.2
