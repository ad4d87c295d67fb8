"""Courses grown by an automaton: against the automaton written out in NumPy, and all that other rooms promise."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from navsetup import clearance, draw, free_poses, load_nav, load_rooms
from scipy import ndimage
from test_geodesic import dijkstra
from test_lidar import mujoco_model, mujoco_ranges, scan

from navtask import random
from navtask.errors import ConfigError
from navtask.nav.config import validate_rooms
from navtask.nav.env import NavEnv
from navtask.nav.geodesic import compute_lengths, resolution_for
from navtask.nav.robot import ROBOT
from navtask.nav.scene import Rooms
from navtask.nav.task import Nav

NUM = 300
FROZEN = int(random.FROZEN)


@pytest.fixture(scope="module")
def config():
    return load_rooms("barn")


@pytest.fixture(scope="module")
def rooms(config):
    """As many as the dataset has, from the stream of frozen sets."""
    return draw(config, NUM, stream=FROZEN)


# -- the automaton once more, by other means ---------------------------------------------------------------------------


def uniform(index, purpose, *, room, episode=0, seed=0, stream=0):
    """Philox4x32-10 in NumPy: (len(index), 4) numbers on [0, 1)."""
    index = np.asarray(index, dtype=np.uint64)
    c = [index, *(np.full_like(index, value) for value in (purpose, episode, room))]
    k, low, half = [np.uint64(seed), np.uint64(stream)], np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(q >> half) ^ c[1] ^ k[0], q & low, (p >> half) ^ c[3] ^ k[1], p & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack([(word >> np.uint64(8)).astype(np.float32) * np.float32(2**-24) for word in c], -1)


def step(field):
    """One step of the automaton on (columns, rows) bool."""
    around = np.zeros(np.array(field.shape) + 2, dtype=int)
    around[:, [0, -1]] = 1  # beyond the sides
    around[1:-1, 1:-1] = field
    neighbours = ndimage.convolve(around, [[1, 1, 1], [1, 0, 1], [1, 1, 1]])[1:-1, 1:-1]
    return np.where(neighbours > 4, True, np.where(neighbours < 2, False, field))


def grow(config, room, *, episode=0, stream=FROZEN, tries=256):
    """The field of a room (columns, rows) and how many fields were drawn for it, written out cell by cell."""
    automaton, gap_cells = config.automaton, 3
    columns, rows = automaton.columns, round(config.size[1] / automaton.cell)
    u = uniform([0], 0, room=room, episode=episode, stream=stream)[0]
    low, high = automaton.fill
    fill = low + u[0] * (high - low)
    steps = automaton.smoothing[0] + int(u[1] * (automaton.smoothing[1] - automaton.smoothing[0] + 1))
    words = -(-rows // 4)
    for attempt in range(tries):
        first = 1 + attempt * columns * words
        numbers = uniform(np.arange(first, first + columns * words), 0, room=room, episode=episode, stream=stream)
        field = numbers.reshape(columns, 4 * words)[:, :rows] < fill
        field[:, [0, -1]] = True
        for _ in range(steps):
            field = step(field)
        blocked = np.lib.stride_tricks.sliding_window_view(field, (gap_cells, gap_cells)).any((2, 3))
        lanes, _ = ndimage.label(~blocked)
        if (set(lanes[0]) & set(lanes[-1])) - {0}:
            return field, attempt + 1
    raise AssertionError("none can be crossed")


def covered(config, rooms, room):
    """How many boxes lie on each cell (columns, rows), and whether every box ends where cells do."""
    cell, columns = config.automaton.cell, config.automaton.columns
    count = np.zeros((columns, round(config.size[1] / cell)), dtype=int)
    whole = True
    for centre, half in zip(rooms.centre[room].double().numpy(), rooms.half[room].double().numpy(), strict=True):
        if half[0] > 0:
            origin = np.array([columns * cell, config.size[1]]) / 2
            low, high = (centre - half + origin) / cell, (centre + half + origin) / cell
            whole &= np.abs(np.concatenate([low - low.round(), high - high.round()])).max() < 1e-4
            count[round(low[0]) : round(high[0]), round(low[1]) : round(high[1])] += 1
    return count, whole


class TestField:
    def test_boxes_cover_exactly_the_cells_of_the_automaton(self, config, rooms):
        drawings = []
        for room in range(60):
            field, drawn = grow(config, room)
            count, whole = covered(config, rooms, room)
            assert whole
            assert np.array_equal(count, field), "each filled cell is in one box, each empty one in none"
            drawings.append(drawn)
        assert max(drawings) > 3, "fields that could not be crossed are among those compared"

    def test_boxes_are_never_turned_and_number_no_more_than_the_slots(self, config, rooms):
        assert (rooms.axis == torch.tensor([1.0, 0.0])).all()
        used = (rooms.half[..., 0] > 0).sum(1)
        assert used.max() <= config.obstacles[1] == rooms.half.shape[1]
        assert used.min() < 25 < 75 < used.max(), "sparse and crowded ones"
        assert (rooms.centre[rooms.half[..., 0] == 0] > 2 * max(config.size)).all(), "the others are parked"

    @pytest.mark.parametrize(("fill", "low", "high"), [(0.15, 0.03, 0.09), (0.20, 0.08, 0.14), (0.30, 0.22, 0.34)])
    def test_how_much_is_filled_in_the_end(self, config, fill, low, high):
        """An automaton empties a sparse field and fills a crowded one."""
        config = replace(config, automaton=replace(config.automaton, fill=[fill, fill]))
        rooms = draw(config, 100)
        cells = (4 * rooms.half.prod(-1)).sum(1) / config.automaton.cell**2
        inner = (cells - 2 * 30) / (28 * 30)
        assert low < inner.mean() < high

    def test_without_smoothing_the_share_of_filled_cells_is_what_was_asked(self, config):
        automaton = replace(config.automaton, fill=[0.05, 0.05], smoothing=[0, 0])
        config = replace(config, obstacles=[0, 128], automaton=automaton)
        rooms = draw(config, 100)
        assert rooms.failures.sum() == 0
        cells = (4 * rooms.half.prod(-1)).sum(1) / config.automaton.cell**2
        share = ((cells - 2 * 30) / (28 * 30)).mean()
        assert share == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / (100 * 840)))


class TestCourse:
    def test_every_goal_is_reached_by_a_flood_at_the_robots_radius(self, config, rooms):
        pixel = 0.025
        size = [round(length / pixel) for length in config.size]
        for room in range(NUM):
            # What is filled, walls included, in pixels; free is what keeps the radius, and half a diagonal, off them.
            filled = np.ones((size[0] + 2, size[1] + 2), dtype=bool)
            filled[1:-1, 1:-1] = False
            low, high = (
                ((rooms.centre[room] + sign * rooms.half[room] + torch.tensor(config.size) / 2) / pixel).round().int()
                for sign in (-1, 1)
            )
            for slot in (rooms.half[room, :, 0] > 0).nonzero().flatten().tolist():
                filled[low[slot, 0] + 1 : high[slot, 0] + 1, low[slot, 1] + 1 : high[slot, 1] + 1] = True
            off = ndimage.distance_transform_edt(~filled) * pixel
            pieces, _ = ndimage.label(off >= ROBOT.radius + 0.71 * pixel)
            at = [
                ((place + torch.tensor(config.size) / 2) / pixel).int() + 1
                for place in (rooms.start[room, :2], rooms.goal[room])
            ]
            start, goal = (pieces[tuple(cell.tolist())] for cell in at)
            assert start == goal != 0

    def test_shortest_ways_are_finite_and_those_of_dijkstra(self, config, rooms):
        found = compute_lengths(rooms, config, resolution_for(config))
        straight = (rooms.goal - rooms.start[:, :2]).norm(dim=-1)
        assert torch.isfinite(found).all()
        assert (found >= straight - 1e-4).all()
        assert (found > 1.2 * straight).sum() > 10, "real detours are among them"
        room = int((found / straight).argmax())
        walked = dijkstra(rooms, config, room, 0.03)
        ends = np.sqrt(2) * 0.03
        assert walked / 1.028 - ends <= found[room] <= walked + ends

    def test_start_and_goal_lie_free_in_the_bays(self, config, rooms):
        field = config.automaton.columns * config.automaton.cell / 2
        need = ROBOT.radius + config.margin
        assert (rooms.start[:, 0] <= -field - need + 1e-5).all()
        assert (rooms.goal[:, 0] >= field + need - 1e-5).all()
        for room in range(0, NUM, 6):
            places = np.stack([rooms.start[room, :2].double().numpy(), rooms.goal[room].double().numpy()])
            assert clearance(rooms, config, room, places)[0].min() >= need - 1e-5
        for places in (rooms.start[:, :2], rooms.goal):
            assert places[:, 1].max() > 1.8
            assert places[:, 1].min() < -1.8
            assert places[:, 0].max() - places[:, 0].min() > 0.8
        assert torch.histc(rooms.start[:, 2], 4, -np.pi, np.pi).min() > NUM / 8

    def test_the_least_distance_is_kept(self, config):
        rooms = draw(replace(config, goal_distance=6.5), 200)
        assert (rooms.goal - rooms.start[:, :2]).norm(dim=1).min() >= 6.5
        assert rooms.failures.sum() == 0


class TestIndependence:
    def same(self, one, other, mine=slice(None), its=slice(None)):
        return all(torch.equal(t[mine], getattr(other, name)[its]) for name, t in one.tensors())

    def test_of_the_number_of_rooms_and_where_the_batch_begins(self, config, rooms):
        assert self.same(rooms, draw(config, 8, stream=FROZEN), slice(8))
        assert self.same(rooms, draw(config, 8, stream=FROZEN, first_room=40), slice(40, 48))

    def test_of_which_rooms_are_drawn(self, config):
        rooms, before, fresh = draw(config, 32), draw(config, 32), draw(config, 32, episode=3)
        mask = torch.arange(32) % 3 == 0
        draw(config, 32, episode=3, mask=mask, into=rooms)
        assert self.same(rooms, before, ~mask, ~mask)
        assert self.same(rooms, fresh, mask, mask)

    @pytest.mark.parametrize("key", ["seed", "stream", "episode"])
    def test_of_nothing_in_the_key(self, config, key):
        one, other = draw(config, 16), draw(config, 16, **{key: 1})
        assert (one.goal != other.goal).any(-1).all()
        assert (one.half != other.half).flatten(1).any(-1).all()


class TestFailures:
    def test_none_in_four_thousand(self, config):
        assert draw(config, 4000, seed=1).failures.sum() == 0

    def test_a_lane_is_cleared_where_no_field_can_be_crossed(self, config):
        automaton = replace(config.automaton, fill=[0.5, 0.5])
        config = replace(config, tries=3, automaton=automaton)
        rooms = draw(config, 20)
        assert (rooms.failures == 1).all()
        assert torch.isfinite(compute_lengths(rooms, config, resolution_for(config))).all()
        for room in range(20):
            count, _ = covered(config, rooms, room)
            assert not count[:, 13:16].any()
            assert count.any()

    def test_fields_that_need_more_boxes_than_there_are_slots_are_drawn_anew(self, config):
        config = replace(config, obstacles=[20, 40])
        rooms = draw(config, 200)
        crossed = rooms.failures == 0
        used = (rooms.half[..., 0] > 0).sum(1)[crossed]
        assert len(used) > 100
        assert used.min() >= 20
        assert used.max() <= 40


def test_ranges_and_clearance_are_those_of_mujoco(config):
    drawn, poses_a_room = draw(config, 12), 100
    lidar, rng = load_nav().lidar, np.random.default_rng(0)
    poses = np.concatenate([free_poses(drawn, config, room, poses_a_room, rng) for room in range(12)])
    poses = poses.astype(np.float32)
    repeated = Rooms(**{name: t.repeat_interleave(poses_a_room, 0).contiguous() for name, t in drawn.tensors()})
    looked = scan(repeated, config, poses)
    theirs, nearest = [], []
    for room in range(12):
        here = poses[room * poses_a_room :][:poses_a_room]
        theirs.append(mujoco_ranges(mujoco_model(drawn, config, room), here, lidar.beams, lidar.max_range))
        nearest.append(clearance(drawn, config, room, here[:, :2].astype(float))[0])
    error = np.abs(looked.clean.numpy() - np.concatenate(theirs))
    assert np.median(error) < 1e-6
    # A ray along an edge may go either way in single precision; no ray slips between boxes side by side.
    assert (error > 1e-4).mean() < 1e-4
    assert np.abs(looked.clearance.numpy() - np.concatenate(nearest)).max() < 1e-5


def test_the_task_runs_in_courses_and_judges_on_them(config):
    task = load_nav(rooms=config)
    env = NavEnv(task, num_envs=16, seed=0)
    generator = torch.Generator().manual_seed(0)
    ended = torch.zeros(16, dtype=torch.bool)
    for _ in range(80):
        _, _, dones, extras = env.step(2 * torch.rand(16, 3, generator=generator) - 1 + torch.tensor([0.5, 0, 0]))
        assert torch.isfinite(extras["final_obs"]["policy"]).all()
        ended |= dones
    assert ended.float().mean() > 0.5
    evaluator = Nav().make_evaluator(load_nav(), config, 20)
    same = Nav().make_evaluator(load_nav(), config, 20)
    assert evaluator.set_hash == same.set_hash
    assert evaluator.unreachable_share == 0
    assert torch.equal(evaluator.env.rooms.goal, draw(config, 20, stream=FROZEN).goal)


def test_contacts_are_where_the_boxes_are(config):
    """Robots set down anywhere touch, for the engine, exactly where geometry says so."""
    drawn, rng = draw(config, 60), np.random.default_rng(1)
    env = NavEnv(load_nav(rooms=config), num_envs=60, seed=0)
    touched = 0
    poses = np.stack([free_poses(drawn, config, room, 10, rng) for room in range(60)])
    distances = np.stack([clearance(drawn, config, room, poses[room, :, :2])[0] for room in range(60)])
    for places, distance in zip(poses.swapaxes(0, 1), distances.T, strict=True):
        env.physics.reset(torch.ones(60, dtype=torch.bool), torch.tensor(places, dtype=torch.float32))
        clear = np.abs(distance - ROBOT.radius) > 1e-4
        assert np.array_equal(env.physics.touching.numpy()[clear], (distance < ROBOT.radius)[clear])
        touched += int(env.physics.touching.sum())
    assert 100 < touched < 500


def test_a_course_takes_no_longer_to_draw_than_a_few_dense_rooms(config):
    def seconds(of):
        draw(of, 10)
        began = time.process_time()
        draw(of, 1000)
        return time.process_time() - began

    assert seconds(config) < 5 * seconds(load_rooms("dense"))


WRONG = [
    ("cell", 0.05),
    ("cell", 0.2),
    ("cell", float("nan")),
    ("columns", 2),
    ("columns", 43),
    ("fill", [0.3, 0.15]),
    ("fill", [0.15]),
    ("fill", [0.1, 0.6]),
    ("smoothing", [4, 2]),
    ("smoothing", [-1, 2]),
    ("smoothing", [2, 99]),
]


class TestSettings:
    def test_what_is_in_conf_is_fine(self, config):
        validate_rooms(config, ROBOT.radius)
        validate_rooms(replace(config, automaton=replace(config.automaton, columns=42)), ROBOT.radius)

    @pytest.mark.parametrize(("key", "value"), WRONG)
    def test_automata_that_cannot_be(self, config, key, value):
        with pytest.raises(ConfigError) as caught:
            validate_rooms(replace(config, automaton=replace(config.automaton, **{key: value})), ROBOT.radius)
        assert caught.value.key == f"task.rooms.automaton.{key}"

    def test_sizes_are_the_automatons_or_the_users(self, config):
        for rooms in (replace(config, half_size=[0.1, 0.2]), load_rooms("open", half_size=None)):
            with pytest.raises(ConfigError, match="half_size"):
                validate_rooms(rooms, ROBOT.radius)

    def test_a_lane_fits_between_the_sides(self, config):
        with pytest.raises(ConfigError, match=r"task.rooms.gap=4.3: expected at most 4.2 m"):
            validate_rooms(replace(config, gap=4.3), ROBOT.radius)
