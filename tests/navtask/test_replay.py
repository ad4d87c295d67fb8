"""Pictures and videos of episodes show what happened."""

import av
import mujoco
import numpy as np
import pytest
import torch
from navsetup import load_nav, rooms_by_hand, use_rooms
from PIL import Image
from reachsetup import load_reach

from navtask.nav.task import Nav
from navtask.reach.planners import ResolvedRate
from navtask.reach.task import Reach
from navtask.replay import COLOURS, FlatView, choose, draw_picture, make_video

SIZE = 200


@pytest.fixture(scope="module")
def filmed():
    """Two equal rooms of a frozen set, a box to the robot's right: one robot drives to the goal, one into the box."""
    config = load_nav("open")
    evaluator = Nav().make_evaluator(config, config.rooms, 2)
    room = rooms_by_hand(config.rooms, start=(-2, 0, 0), goal=(2, 0), boxes=[(-2, -2, 1.0, 0.3, 0.3)], num=2)
    use_rooms(evaluator.env, room)
    instants = []

    def policy(observation):
        return torch.tensor([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])

    measured = evaluator.run(policy, lambda: instants.append(evaluator.configuration().clone()))
    return evaluator, measured, torch.stack(instants)


@pytest.fixture(scope="module")
def replays(filmed):
    evaluator, measured, configurations = filmed
    return evaluator.replays(measured, configurations, 2)


def pixel(replay, x, y):
    """Column and row of a place in a picture of SIZE."""
    left, right, bottom, _ = replay.extent
    scale = SIZE / (right - left)
    return round((x - left) * scale), round(SIZE - (y - bottom) * scale)


def colour_at(picture, replay, x, y):
    return np.array(picture.getpixel(pixel(replay, x, y)), dtype=int)


def close(colour, expected, by=30):
    return np.abs(colour - np.array(expected)).max() < by


def test_both_outcomes_are_told(replays, filmed):
    good, failed = replays
    assert (good.title, good.outcome) == ("room 0", "success")
    assert (failed.title, failed.outcome) == ("room 1", "collision")
    _, measured, _ = filmed
    # An episode of n steps has n + 1 instants, and no more.
    assert (len(good.qpos) - 1) * good.control_dt == pytest.approx(measured["time_to_goal"][0].item())
    assert good.trail[0, :2] == pytest.approx([-2, 0])
    assert np.linalg.norm(good.trail[-1, :2] - good.goal[:2]) < good.goal_radius


def test_the_scan_ends_on_what_stands_there(replays):
    good = replays[0]
    # Ahead of the robot is the wall, or the end of the range; the beam to the right meets the box.
    scan = good.scan[0]
    assert scan[0] == pytest.approx([4.0, 0.0], abs=1e-3)  # 6 m from x = -2
    right = scan[54]  # 270 degrees of 72 beams
    assert right[0] == pytest.approx(-2, abs=1e-3)
    model, data = good.model, mujoco.MjData(good.model)
    data.qpos[:] = good.qpos[0]
    mujoco.mj_forward(model, data)
    geom = np.zeros(1, dtype=np.int32)
    far = mujoco.mj_ray(model, data, [-2, 0, 0.15], [0, -1, 0], None, 1, int(model.geom_bodyid.max()), geom)
    assert -right[1] == pytest.approx(far, abs=1e-4)


def test_a_picture_shows_robot_way_goal_and_solids(replays):
    good = replays[0]
    picture = FlatView(good, SIZE)(len(good.qpos))
    assert close(colour_at(picture, good, -2, -2), (105, 110, 118))  # the box, rotated
    assert close(colour_at(picture, good, -1.14, -1.73), (105, 110, 118))
    assert not close(colour_at(picture, good, -1.14, -2.27), (105, 110, 118))
    assert close(colour_at(picture, good, 0, 0), COLOURS["success"])  # the way
    assert not close(colour_at(FlatView(good, SIZE)(0), good, 0, 0), COLOURS["success"])  # not yet
    x, y = good.trail[-1, :2]
    assert close(colour_at(picture, good, x, y + 0.12), (52, 101, 164))  # the robot
    assert close(colour_at(picture, good, 2, -0.22), (240, 200, 60))  # the goal


def test_files(replays, tmp_path):
    draw_picture(replays, tmp_path / "trajectories.png", size=SIZE)
    assert Image.open(tmp_path / "trajectories.png").size == (SIZE, 2 * SIZE)
    assert make_video(replays, tmp_path / "replay.mp4", size=SIZE) == "flat"
    with av.open(str(tmp_path / "replay.mp4")) as video:
        frames = [frame.to_image() for frame in video.decode(video=0)]
        assert video.streams.video[0].codec_context.name == "h264"
    longest = max(len(replay.qpos) for replay in replays)
    assert len(frames) == longest // 2 + 1 + 15  # every second one, and 1.5 s of the last picture at 10 a second
    assert frames[0].size == (SIZE, 2 * SIZE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["replay.mp4", "trajectories.png"]


class TestOutcome:
    """An episode is told to have ended as it did, whatever the task counts its end as."""

    def told(self, evaluator, policy):
        """How each room's episode ended, as its replay says."""
        instants = []
        measured = evaluator.run(policy, lambda: instants.append(evaluator.configuration().clone()))
        replays = evaluator.replays(measured, torch.stack(instants), len(instants[0]))
        assert all(np.isfinite(replay.qpos).all() for replay in replays)
        return {replay.title: replay.outcome for replay in replays}

    def test_of_a_robot(self):
        config = load_nav("open", episode_length=3.0)
        evaluator = Nav().make_evaluator(config, config.rooms, 5)
        rooms = rooms_by_hand(config.rooms, start=(-2, 0, 0), goal=(-1, 0), boxes=[(-2, -2, 1.0, 0.3, 0)], num=5)
        rooms.start[3, 0] = -6.0  # behind the wall
        use_rooms(evaluator.env, rooms)
        ahead, aside, stay = [1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 0.0]
        actions = torch.tensor([ahead, aside, stay, stay, [torch.nan, 0.0, 0.0]])
        ends = ["success", "collision", "timeout", "out_of_bounds", "diverged"]
        assert self.told(evaluator, lambda _: actions) == {f"room {room}": end for room, end in enumerate(ends)}

    def test_of_an_arm(self):
        config = load_reach()
        evaluator, planner = Reach().make_evaluator(config, config.targets, 3), ResolvedRate(config)

        def policy(observation):
            return planner(observation) * torch.tensor([[1.0], [0.0], [torch.nan]])

        assert self.told(evaluator, policy) == {"room 0": "success", "room 1": "timeout", "room 2": "diverged"}


class TestChoice:
    def test_good_and_failed_ones_in_equal_parts(self):
        success = [True] * 10 + [False] * 5
        chosen = choose(success, np.arange(15)[::-1], 6)
        assert [success[k] for k in chosen] == [True] * 3 + [False] * 3
        assert len(set(chosen)) == 6

    def test_too_few_of_one_kind(self):
        assert choose([True] * 4, np.arange(4), 6) == [0, 1, 2, 3]
        one_failed = choose([True] * 9 + [False], np.arange(10), 6)
        assert len(one_failed) == len(set(one_failed)) == 6
        assert 9 in one_failed
        assert choose([False] * 3, np.arange(3), 6) == [0, 1, 2]
