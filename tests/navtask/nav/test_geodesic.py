"""Lengths of shortest ways: against ways known in closed form, and against Dijkstra on a finer graph."""

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from navsetup import PRESETS, clearance, draw, load_rooms, rooms_by_hand
from scipy import ndimage

from navtask import random
from navtask.nav import geodesic
from navtask.nav.geodesic import RESOLUTION, compute_lengths, geodesic_lengths
from navtask.nav.robot import ROBOT


def length(config, resolution=RESOLUTION, **room):
    return compute_lengths(rooms_by_hand(config, **room), config, resolution).item()


def mask_of_free_cells(rooms, config, room, resolution):
    """(rows, columns) bool and the cell centres (rows, columns, 2), by independent geometry."""
    axes = [
        (np.arange(round(size / resolution)) - (round(size / resolution) - 1) / 2) * resolution for size in config.size
    ]
    points = np.stack(np.meshgrid(*axes), -1)
    return clearance(rooms, config, room, points)[0] >= ROBOT.radius, points


def dijkstra(rooms, config, room, resolution):
    """Shortest way over free cell centres with steps to 16 neighbours: too long by at most 2.8 %, in the mean 1 %."""
    free, points = mask_of_free_cells(rooms, config, room, resolution)
    steps = [(i, j) for i in (-2, -1, 0, 1, 2) for j in (-2, -1, 0, 1, 2) if math.gcd(i, j) == 1]
    ends = [rooms.start[room, :2].double().numpy(), rooms.goal[room].double().numpy()]
    first, last = (
        np.unravel_index(np.where(free, np.linalg.norm(points - end, axis=-1), np.inf).argmin(), free.shape)
        for end in ends
    )
    best = {first: 0.0}
    queue = [(0.0, first)]
    while queue:
        d, at = heapq.heappop(queue)
        if at == last:
            return d
        if d > best[at]:
            continue
        for i, j in steps:
            to = (at[0] + i, at[1] + j)
            # A knight's step passes between two cells: both must be free.
            passed = (
                [to]
                if max(abs(i), abs(j)) == 1
                else [
                    to,
                    (at[0] + math.floor(i / 2), at[1] + math.floor(j / 2)),
                    (at[0] + math.ceil(i / 2), at[1] + math.ceil(j / 2)),
                ]
            )
            if not all(0 <= r < free.shape[0] and 0 <= c < free.shape[1] and free[r, c] for r, c in passed):
                continue
            there = d + resolution * math.hypot(i, j)
            if there < best.get(to, math.inf):
                best[to] = there
                heapq.heappush(queue, (there, to))
    return math.inf


class TestKnownLengths:
    @pytest.fixture
    def config(self):
        return load_rooms()

    @pytest.mark.parametrize("goal", [[3.0, 0.0], [-4.7, 4.7], [0.123, -0.456], [0.01, 0.0]])
    def test_an_empty_room_is_crossed_straight(self, config, goal):
        assert length(config, start=[0.0, 0.0, 1.0], goal=goal) == pytest.approx(math.hypot(*goal), abs=1e-5)

    def test_a_line_that_just_clears_is_straight(self, config):
        room = {"start": [-2.0, 0.0, 0.0], "goal": [2.0, 0.0]}
        for boxes in ([(0.0, 0.701, 0.5, 0.5, 0.0)], [(0.0, -0.701, 0.5, 0.5, 0.0)]):
            assert length(config, **room, boxes=boxes) == pytest.approx(4.0, abs=1e-5)
        assert length(config, **room, cylinders=[(0.3, 0.701, 0.5)]) == pytest.approx(4.0, abs=1e-5)
        assert length(config, **room, cylinders=[(0.3, 0.55, 0.5)]) > 4.0
        assert length(config, **room, boxes=[(0.3, 0.55, 0.5, 0.5, 0.0)]) > 4.0

    def test_round_a_cylinder(self, config):
        """Two tangents and the arc between them, of the cylinder grown by the robot."""
        radius, far = 0.6 + ROBOT.radius, 2.0
        tangent, angle = math.sqrt(far**2 - radius**2), math.acos(radius / far)
        exact = 2 * tangent + radius * (math.pi - 2 * angle)
        for turn in np.linspace(0, math.pi, 7):
            c, s = far * math.cos(turn), far * math.sin(turn)
            found = length(config, start=[-c, -s, 0.0], goal=[c, s], cylinders=[(0.0, 0.0, 0.6)])
            assert exact - 1e-4 <= found <= 1.002 * exact

    def test_round_a_box(self, config):
        """Two tangents, two arcs of the robot's radius about the corners, and the side between them."""
        hx, hy, radius, far = 0.3, 1.0, ROBOT.radius, 2.0
        reach = math.hypot(far - hx, hy)
        rise = math.atan2(hy, far - hx) + math.asin(radius / reach)
        exact = 2 * math.sqrt(reach**2 - radius**2) + 2 * radius * rise + 2 * hx
        for turn in (0.0, 0.4, math.pi / 2):
            c, s = far * math.cos(turn), far * math.sin(turn)
            found = length(config, start=[-c, -s, 0.0], goal=[c, s], boxes=[(0.0, 0.0, hx, hy, turn)])
            assert exact - 1e-4 <= found <= 1.002 * exact

    @pytest.mark.parametrize("resolution", [0.1, 0.05, 0.02])
    def test_the_grid_decides_only_which_way_round(self, config, resolution):
        radius, far = 0.6 + ROBOT.radius, 2.0
        exact = 2 * math.sqrt(far**2 - radius**2) + radius * (math.pi - 2 * math.acos(radius / far))
        room = {"start": [-far, 0.0, 0.0], "goal": [far, 0.0], "cylinders": [(0.0, 0.0, 0.6)]}
        assert length(config, resolution, **room) == pytest.approx(exact, rel=1e-3)

    def test_the_shorter_side_is_taken(self, config):
        room = {"start": [-2.0, 0.0, 0.0], "goal": [2.0, 0.0]}
        above = length(config, **room, boxes=[(0.0, -0.5, 0.3, 1.0, 0.0)])
        below = length(config, **room, boxes=[(0.0, 0.5, 0.3, 1.0, 0.0)])
        assert above == pytest.approx(below, abs=2e-3)
        assert above < length(config, **room, boxes=[(0.0, 0.0, 0.3, 1.0, 0.0)]) - 0.2

    def test_either_way_is_as_long(self, config):
        room = {"cylinders": [(0.0, 0.0, 0.6)], "boxes": [(1.5, 0.5, 0.2, 0.6, 0.3)]}
        out = length(config, start=[-2.0, 0.0, 0.0], goal=[3.0, 0.5], **room)
        back = length(config, start=[3.0, 0.5, 0.0], goal=[-2.0, 0.0], **room)
        assert out == pytest.approx(back, rel=1e-3)

    def test_a_goal_walled_in_is_infinitely_far(self, config):
        config = replace(config, obstacles=[8, 8])
        boxes = [(2.0, 1.0, 1.2, 0.1, 0.0), (2.0, -1.0, 1.2, 0.1, 0.0), (1.0, 0.0, 0.1, 1.2, 0.0)]
        room = {"start": [-2.0, 0.0, 0.0], "goal": [2.0, 0.0]}
        assert math.isfinite(length(config, **room, boxes=boxes))
        assert math.isinf(length(config, **room, boxes=[*boxes, (3.0, 0.0, 0.1, 1.2, 0.0)]))

    def test_a_passage_narrower_than_the_robot_is_none(self, config):
        for gap, through in ((0.36, False), (0.60, True)):
            # A wall across the whole room with a gap in its middle.
            side = (5.0 - gap / 2) / 2
            boxes = [(0.0, gap / 2 + side, 0.1, side, 0.0), (0.0, -gap / 2 - side, 0.1, side, 0.0)]
            found = length(config, start=[-2.0, 0.0, 0.0], goal=[2.0, 0.5], boxes=boxes)
            assert math.isfinite(found) == through

    def test_rooms_need_not_be_square(self, config):
        config = replace(config, size=[14.0, 4.0])
        room = {"start": [-6.0, 0.0, 0.0], "goal": [6.0, 0.0], "boxes": [(0.0, -0.8, 0.3, 1.2, 0.0)]}
        # Over the box's top at y = 0.4, and the robot's radius more.
        low, high = 2 * math.hypot(5.7, 0.6) + 0.6 - 0.05, 2 * math.hypot(5.7, 0.6) + 0.6 + 0.05
        assert low < length(config, **room) < high


@pytest.mark.parametrize(("preset", "num", "resolution"), [("open", 4, 0.08), ("dense", 2, 0.05)])
def test_against_dijkstra(preset, num, resolution):
    config = load_rooms(preset)
    rooms = draw(config, num, seed=3)
    found = compute_lengths(rooms, config, RESOLUTION).numpy()
    for room in range(num):
        walked = dijkstra(rooms, config, room, resolution)
        # Both of its ends are up to 0.71 cells off, and steps in sixteen directions too long by up to 2.8 %.
        ends = math.sqrt(2) * resolution
        assert walked / 1.028 - ends <= found[room] <= walked + ends


@pytest.mark.parametrize("preset", PRESETS)
class TestFrozenSets:
    def test_every_goal_is_reachable_and_no_way_is_shorter_than_the_straight_line(self, preset):
        config = load_rooms(preset)
        rooms = draw(config, 1000, stream=int(random.FROZEN))
        found = compute_lengths(rooms, config, RESOLUTION)
        straight = (rooms.goal - rooms.start[:, :2]).norm(dim=-1)
        assert torch.isfinite(found).all()
        assert (found >= straight - 1e-4).all()
        assert (found < 1.3 * straight + 0.5).all()
        detours = ((found - straight) > 1e-4).float().mean()
        assert (0.4 if preset == "open" else 0.8) < detours < 1.0
        # Both ends lie in one connected piece of the free cells, by independent means.
        for room in range(0, 1000, 100):
            free, points = mask_of_free_cells(rooms, config, room, RESOLUTION)
            pieces, _ = ndimage.label(free)
            ends = [
                pieces.ravel()[np.linalg.norm(points - end, axis=-1).argmin()]
                for end in (rooms.start[room, :2].double().numpy(), rooms.goal[room].double().numpy())
            ]
            assert ends[0] == ends[1] != 0

    def test_as_accurate_as_the_docstring_says(self, preset):
        config = load_rooms(preset)
        rooms = draw(config, 80, stream=int(random.FROZEN))
        usual, fine = (compute_lengths(rooms, config, h) for h in (RESOLUTION, RESOLUTION / 4))
        off = usual / fine - 1
        assert off.min() > -2e-3
        assert off.mean() < (0.0004 if preset == "open" else 0.0012)
        assert off.quantile(0.9) < 0.001
        assert off.quantile(0.99) < 0.02

    def test_a_room_does_not_depend_on_the_others(self, preset):
        config = load_rooms(preset)
        many, few = (compute_lengths(draw(config, num), config, RESOLUTION) for num in (37, 5))
        assert torch.equal(many[:5], few)


class TestCache:
    @pytest.fixture
    def rooms(self):
        return draw(load_rooms(), 5)

    @pytest.fixture
    def counted(self, monkeypatch):
        """How often lengths were computed."""
        calls = []

        def compute(*args):
            calls.append(args)
            return compute_lengths(*args)

        monkeypatch.setattr(geodesic, "compute_lengths", compute)
        return calls

    def files(self, tmp_path):
        return sorted((tmp_path / "cache").iterdir())

    def test_second_time_is_looked_up(self, rooms, counted, tmp_path):
        first = geodesic_lengths(rooms, load_rooms())
        assert torch.equal(geodesic_lengths(rooms, load_rooms()), first)
        assert torch.equal(first, compute_lengths(rooms, load_rooms(), RESOLUTION))
        assert len(counted) == 1
        assert [f.suffix for f in self.files(tmp_path)] == [".npy"], "nothing half-written is left"

    @pytest.mark.parametrize("what", ["centre", "half", "axis", "start", "goal"])
    def test_any_change_of_a_room_is_another_entry(self, rooms, counted, what):
        geodesic_lengths(rooms, load_rooms())
        getattr(rooms, what)[2, ..., 0] += 1e-3
        geodesic_lengths(rooms, load_rooms())
        assert len(counted) == 2

    def test_so_is_another_resolution_config_or_version(self, rooms, counted, monkeypatch):
        geodesic_lengths(rooms, load_rooms())
        geodesic_lengths(rooms, load_rooms(), 0.1)
        geodesic_lengths(rooms, load_rooms(size=[9.0, 10.0]))
        monkeypatch.setattr(geodesic, "VERSION", geodesic.VERSION + 1)
        geodesic_lengths(rooms, load_rooms())
        assert len(counted) == 4

    @pytest.mark.parametrize("content", [b"", b"no numpy file", "pickle", "short", "nan", "wrong shape"])
    def test_a_spoilt_file_is_computed_anew(self, rooms, counted, tmp_path, content):
        expected = geodesic_lengths(rooms, load_rooms())
        (file,) = self.files(tmp_path)
        if content == "pickle":
            np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        elif content == "short":
            file.write_bytes(file.read_bytes()[:-6])
        elif content == "nan":
            np.save(file, np.full(5, np.nan, dtype=np.float32))
        elif content == "wrong shape":
            np.save(file, np.ones((5, 2), dtype=np.float32))
        else:
            file.write_bytes(content)
        assert torch.equal(geodesic_lengths(rooms, load_rooms()), expected)
        assert len(counted) == 2
        geodesic_lengths(rooms, load_rooms())
        assert len(counted) == 2, "and kept again"

    def test_without_a_place_to_keep_it_lengths_are_still_computed(self, rooms, counted, monkeypatch, tmp_path):
        blocked = tmp_path / "a file"
        blocked.write_text("")
        monkeypatch.setenv("NAVTASK_CACHE", str(blocked / "below"))
        for _ in range(2):
            assert torch.isfinite(geodesic_lengths(rooms, load_rooms())).all()
        assert len(counted) == 2

    def test_by_default_it_is_in_the_users_cache_folder(self, rooms, monkeypatch, tmp_path):
        monkeypatch.delenv("NAVTASK_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        geodesic_lengths(rooms, load_rooms())
        assert list((tmp_path / "xdg" / "navtask").iterdir())


def test_an_impossible_resolution_is_refused():
    with pytest.raises(ValueError, match="resolution=0"):
        compute_lengths(draw(load_rooms(), 1), load_rooms(), 0)
