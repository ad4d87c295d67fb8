"""Rooms as they are drawn: what they promise, and that each depends on its own key alone."""

from itertools import combinations

import numpy as np
import pytest
import torch
from navsetup import PRESETS, clearance, draw, gap_between, load_rooms, obstacles

from navtask.nav.robot import ROBOT
from navtask.nav.scene import Rooms, Slots, build_model, first_obstacle_geom

NUM = 300


@pytest.fixture(scope="module", params=PRESETS)
def drawn(request):
    config = load_rooms(request.param)
    return config, draw(config, NUM)


def same(one: Rooms, other: Rooms, mine=slice(None), its=slice(None)):
    return all(torch.equal(t[mine], getattr(other, name)[its]) for name, t in one.tensors())


def test_obstacles_keep_their_gaps(drawn):
    config, rooms = drawn
    least = min(
        gap_between(a, b) for room in range(0, NUM, 3) for a, b in combinations(obstacles(rooms, config, room), 2)
    )
    assert least >= config.gap - 1e-5
    assert least < config.gap + 0.02, "gaps as narrow as allowed do occur"


def test_obstacles_keep_off_the_walls(drawn):
    config, rooms = drawn
    least = np.inf
    for room in range(NUM):
        for kind, shape, size in obstacles(rooms, config, room):
            reach = np.abs(shape) + size if kind == "cylinder" else np.abs(shape)
            least = min(least, (np.array(config.size) / 2 - reach).min())
    assert config.gap - 1e-5 <= least < config.gap + 0.05


def test_start_and_goal_are_free(drawn):
    config, rooms = drawn
    need = ROBOT.radius + config.margin
    for room in range(NUM):
        places = np.stack([rooms.start[room, :2].double().numpy(), rooms.goal[room].double().numpy()])
        assert clearance(rooms, config, room, places)[0].min() >= need - 1e-5


def test_start_and_goal_lie_apart_and_everywhere(drawn):
    config, rooms = drawn
    assert (rooms.goal - rooms.start[:, :2]).norm(dim=1).min() >= config.goal_distance - 1e-5
    inner = torch.tensor(config.size) / 2 - ROBOT.radius - config.margin
    for places in (rooms.start[:, :2], rooms.goal):
        assert (places.abs() <= inner + 1e-5).all()
        quadrants = torch.bincount((places[:, 0] > 0).int() * 2 + (places[:, 1] > 0).int(), minlength=4)
        assert quadrants.min() > NUM / 8
        assert (places.amax(0) > 0.9 * inner).all()
        assert (places.amin(0) < -0.9 * inner).all()


def test_start_headings_are_uniform(drawn):
    _, rooms = drawn
    yaw = rooms.start[:, 2]
    assert (yaw.abs() <= np.pi).all()
    assert torch.histc(yaw, 4, -np.pi, np.pi).min() > NUM / 8


def test_counts_kinds_and_sizes(drawn):
    config, rooms = drawn
    cylinders = Slots.of(config).cylinders
    used = rooms.half[..., 0] > 0
    count = used.sum(1)
    assert set(count.tolist()) == set(range(config.obstacles[0], config.obstacles[1] + 1))
    # Kinds alternate, cylinders first.
    assert torch.equal(used[:, :cylinders].sum(1), (count + 1) // 2)
    assert torch.equal(used[:, cylinders:].sum(1), count // 2)
    low, high = config.half_size
    sizes = rooms.half[used]
    assert sizes.min() >= low
    assert sizes.max() <= high
    assert sizes.min() < low + 0.02 < high - 0.02 < sizes.max()
    assert torch.equal(rooms.half[:, :cylinders, 0], rooms.half[:, :cylinders, 1]), "cylinders hold their radius twice"
    boxes = rooms.axis[:, cylinders:][used[:, cylinders:]]
    assert torch.allclose(boxes.norm(dim=-1), torch.ones(len(boxes)), atol=1e-6)
    yaw = torch.atan2(boxes[:, 1], boxes[:, 0])
    assert torch.histc(yaw, 4, 0, np.pi).min() > len(yaw) / 6


def test_unused_slots_are_parked(drawn):
    config, rooms = drawn
    unused = rooms.half[..., 0] == 0
    assert unused.any()
    assert (rooms.centre[unused].abs().amax(-1) > 2 * max(config.size)).all()


def test_presets_never_fail(drawn):
    config, _ = drawn
    assert draw(config, 4000, seed=1).failures.sum() == 0


def test_rooms_differ(drawn):
    _, rooms = drawn
    assert len(torch.unique(rooms.goal, dim=0)) == NUM
    assert len(torch.unique(rooms.centre[:, 0], dim=0)) == NUM


@pytest.mark.parametrize("preset", PRESETS)
class TestIndependence:
    def test_of_the_number_of_rooms(self, preset):
        config = load_rooms(preset)
        assert same(draw(config, 64), draw(config, 8), slice(8))

    def test_of_where_the_batch_begins(self, preset):
        config = load_rooms(preset)
        assert same(draw(config, 64), draw(config, 8, first_room=40), slice(40, 48))

    def test_of_which_rooms_are_drawn(self, preset):
        config = load_rooms(preset)
        rooms, before, fresh = draw(config, 64), draw(config, 64), draw(config, 64, episode=3)
        mask = torch.arange(64) % 3 == 0
        draw(config, 64, episode=3, mask=mask, into=rooms)
        assert same(rooms, before, ~mask, ~mask), "rooms that are not drawn stay as they are"
        assert same(rooms, fresh, mask, mask)

    @pytest.mark.parametrize("key", ["seed", "stream", "episode"])
    def test_of_nothing_in_the_key(self, preset, key):
        config = load_rooms(preset)
        one, other = draw(config, 32), draw(config, 32, **{key: 1})
        assert (one.goal != other.goal).any(-1).all()
        assert (one.centre[:, 0] != other.centre[:, 0]).any(-1).all()

    def test_one_draw_leaves_nothing_for_the_next(self, preset):
        config = load_rooms(preset)
        rooms = draw(config, 32, episode=5)
        assert same(draw(config, 32, into=rooms), draw(config, 32))


class TestFailures:
    def test_obstacles_left_out_are_counted(self):
        config = load_rooms("dense", size=[5.0, 5.0], obstacles=[30, 30], goal_distance=1.0)
        rooms = draw(config, 50)
        left_out = 30 - (rooms.half[..., 0] > 0).sum(1)
        assert left_out.min() > 0
        assert torch.equal(rooms.failures, left_out.int())

    def test_start_and_goal_that_find_no_place_are_counted_and_put_in_free_corners(self):
        config = load_rooms("dense", size=[6.0, 6.0], obstacles=[12, 12], goal_distance=5.5, tries=3)
        rooms = draw(config, 200)
        corner = torch.tensor(config.size) / 2 - ROBOT.radius - config.margin
        cornered = (rooms.goal == corner).all(-1)
        assert cornered.any()
        assert (rooms.failures[cornered] > 0).all()
        assert torch.equal(rooms.start[cornered, :2], (-corner).expand(int(cornered.sum()), 2))
        for room in range(200):
            places = np.stack([rooms.start[room, :2].double().numpy(), rooms.goal[room].double().numpy()])
            assert clearance(rooms, config, room, places)[0].min() >= ROBOT.radius + config.margin - 1e-5

    def test_failures_add_up_over_drawings(self):
        config = load_rooms("dense", size=[5.0, 5.0], obstacles=[30, 30], goal_distance=1.0)
        rooms = draw(config, 10)
        first = rooms.failures.clone()
        draw(config, 10, episode=1, into=rooms)
        assert torch.equal(rooms.failures, first + draw(config, 10, episode=1).failures)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_obstacles(count):
    config = load_rooms(obstacles=[count, count])
    rooms = draw(config, 5)
    assert (rooms.half[..., 0] > 0).sum(1).tolist() == [count] * 5
    model = build_model(config, 0.02)
    assert model.ngeom == 1 + 4 + count


def test_model_has_a_geom_for_every_slot(drawn):
    config, _ = drawn
    model = build_model(config, 0.01)
    first = first_obstacle_geom(model)
    assert model.opt.timestep == 0.01
    assert [model.geom(first + k).name for k in range(Slots.of(config).total)] == [
        f"obstacle_{k}" for k in range(Slots.of(config).total)
    ]
