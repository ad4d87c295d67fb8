"""The lidar against MuJoCo's own rays, and its noise against what the settings say."""

import math
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from navsetup import PRESETS, clearance, draw, free_poses, load_nav, load_rooms, obstacles, rooms_by_hand

from navtask import random
from navtask.nav.lidar import Lidar
from navtask.nav.robot import ROBOT
from navtask.nav.scene import Rooms

ROOMS = 24
POSES = 100


def scan(rooms, config, poses, *, lidar=None, mask=None, step=0, episode=0, threads=1, **source):
    """A lidar that has looked once from ``poses`` (N, 3)."""
    num = len(poses)
    scanner = Lidar(
        lidar or load_nav().lidar,
        config,
        rooms,
        episode=torch.full((num,), episode, dtype=torch.int32),
        step=torch.full((num,), step, dtype=torch.int64),
        source=random.source(0, **source),
        threads=threads,
    )
    everywhere = torch.ones(num, dtype=torch.bool)
    scanner.scan(everywhere if mask is None else mask, torch.as_tensor(poses, dtype=torch.float32))
    return scanner


def mujoco_model(rooms, config, room):
    """The room as a model of its own, compiled from nothing."""
    spec = mujoco.MjSpec()
    box, cylinder = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
    x, y = config.size[0] / 2, config.size[1] / 2
    for px, py, sx, sy in ((x + 1, 0, 1, y + 2), (-x - 1, 0, 1, y + 2), (0, y + 1, x + 2, 1), (0, -y - 1, x + 2, 1)):
        spec.worldbody.add_geom(type=box, pos=(px, py, 0), size=(sx, sy, 1))
    for kind, shape, size in obstacles(rooms, config, room):
        if kind == "cylinder":
            spec.worldbody.add_geom(type=cylinder, pos=(*shape, 0), size=(size, 1, 0))
        else:
            yaw = math.atan2(*(shape[0] - shape[1])[::-1])
            quat = (math.cos(yaw / 2), 0, 0, math.sin(yaw / 2))
            spec.worldbody.add_geom(type=box, pos=(*shape.mean(0), 0), size=(*size, 1), quat=quat)
    return spec.compile()


def mujoco_ranges(model, poses, beams, max_range):
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    out = []
    for x, y, yaw in poses:
        angles = yaw + 2 * math.pi * np.arange(beams) / beams
        vec = np.stack([np.cos(angles), np.sin(angles), 0 * angles], -1).ravel()
        dist, geom = np.zeros(beams), np.zeros(beams, dtype=np.int32)
        point = np.array([x, y, 0.0])
        mujoco.mj_multiRay(model, data, point, vec, None, True, -1, geom, dist, None, beams, mujoco.mjMAXVAL)
        out.append(np.where(dist < 0, max_range, np.minimum(dist, max_range)))
    return np.array(out)


@pytest.fixture(scope="module", params=PRESETS)
def looked(request):
    """Poses, what our lidar sees from them and what MuJoCo sees, in many rooms; and the same rooms repeated."""
    config, lidar = load_rooms(request.param), load_nav().lidar
    drawn = draw(config, ROOMS)
    rng = np.random.default_rng(0)
    poses = [free_poses(drawn, config, room, POSES, rng) for room in range(ROOMS)]
    repeated = Rooms(**{name: t.repeat_interleave(POSES, 0).contiguous() for name, t in drawn.tensors()})
    flat = np.concatenate(poses).astype(np.float32)
    theirs = [
        mujoco_ranges(mujoco_model(drawn, config, room), flat[room * POSES :][:POSES], lidar.beams, lidar.max_range)
        for room in range(ROOMS)
    ]
    return config, drawn, flat, scan(repeated, config, flat), np.concatenate(theirs)


def test_ranges_are_those_of_mujoco(looked):
    config, drawn, poses, scanner, theirs = looked
    ours = scanner.clean.numpy()
    error = np.abs(ours - theirs)
    lidar = load_nav().lidar
    assert theirs.size > 100_000
    assert 0.3 < (theirs < lidar.max_range).mean() < 1.0
    assert np.median(error) < 1e-6
    # A ray that just touches an edge may go either way in single precision: then so it does in MuJoCo's eyes, turned
    # by a hair.
    off = np.argwhere(error > 1e-4)
    assert len(off) < 1e-4 * theirs.size
    for row, beam in off:
        model = mujoco_model(drawn, config, row // POSES)
        turned = poses[row] + np.array([[0, 0, -1e-4], [0, 0, 1e-4]])
        around = mujoco_ranges(model, turned, lidar.beams, lidar.max_range)[:, beam]
        assert around.min() - 1e-3 <= ours[row, beam] <= around.max() + 1e-3


def test_clearance_and_direction_of_the_nearest_surface(looked):
    config, drawn, poses, scanner, _ = looked
    distance, towards = [], []
    for room in range(ROOMS):
        here = poses[room * POSES :][:POSES].astype(float)
        d, nearest = clearance(drawn, config, room, here[:, :2])
        to = (nearest - here[:, :2]) / d[:, None]
        c, s = np.cos(here[:, 2]), np.sin(here[:, 2])
        distance.append(d)
        towards.append(np.stack([c * to[:, 0] + s * to[:, 1], c * to[:, 1] - s * to[:, 0]], -1))
    assert np.abs(scanner.clearance.numpy() - np.concatenate(distance)).max() < 1e-5
    # Where two surfaces are about equally near either is right.
    wrong = np.linalg.norm(scanner.nearest.numpy() - np.concatenate(towards), axis=1) > 1e-2
    assert wrong.mean() < 1e-3
    assert np.allclose(np.linalg.norm(scanner.nearest.numpy(), axis=1), 1.0, atol=1e-5)


def test_no_beam_is_shorter_than_the_clearance(looked):
    *_, scanner, _ = looked
    assert (scanner.clean.amin(-1) >= scanner.clearance - 1e-5).all()


class TestByHand:
    @pytest.fixture
    def config(self):
        return load_rooms()

    def test_beam_zero_points_forward_and_they_go_counter_clockwise(self, config):
        rooms = rooms_by_hand(config, start=[0.0, 0.0, 0.0], goal=[3.0, 0.0], cylinders=[(2.0, 0.0, 0.5)])
        beams = load_nav().lidar.beams
        for yaw, beam in ((0.0, 0), (math.pi / 2, 3 * beams // 4), (-math.pi / 2, beams // 4), (math.pi, beams // 2)):
            ranges = scan(rooms, config, [[0.0, 0.0, yaw]]).clean[0]
            assert ranges.argmin() == beam
            assert ranges[beam] == pytest.approx(1.5, abs=1e-5)

    def test_a_box_face_on(self, config):
        rooms = rooms_by_hand(config, start=[0.0, 0.0, 0.0], goal=[3.0, 0.0], boxes=[(2.0, 0.0, 0.25, 0.5, 0.0)])
        scanner = scan(rooms, config, [[0.0, 0.0, 0.0]])
        assert scanner.clean[0, 0] == pytest.approx(1.75, abs=1e-5)
        assert scanner.clearance[0] == pytest.approx(1.75, abs=1e-5)
        assert scanner.nearest[0].tolist() == pytest.approx([1.0, 0.0], abs=1e-6)

    def test_behind_counts_when_the_heading_wraps(self, config):
        rooms = rooms_by_hand(config, start=[0.0, 0.0, 0.0], goal=[3.0, 0.0], cylinders=[(-2.0, 0.0, 0.5)])
        for turns in (-3, 0, 5):
            ranges = scan(rooms, config, [[0.0, 0.0, 2 * math.pi * turns + 0.01]]).clean[0]
            assert ranges.min() == pytest.approx(1.5, abs=1e-3)
            assert ranges.argmin() == len(ranges) // 2

    def test_far_walls_read_as_the_maximum_range(self, config):
        rooms = rooms_by_hand(replace(config, size=[40.0, 40.0]), start=[0.0, 0.0, 0.0], goal=[3.0, 0.0])
        scanner = scan(rooms, replace(config, size=[40.0, 40.0]), [[0.0, 0.0, 0.3]])
        assert (scanner.clean == load_nav().lidar.max_range).all()

    @pytest.mark.parametrize("beams", [4, 5, 73, 360])
    def test_any_number_of_beams(self, config, beams):
        rooms = rooms_by_hand(config, start=[0.0, 0.0, 0.0], goal=[3.0, 0.0], cylinders=[(0.0, 2.0, 0.5)])
        pose = np.array([[0.1, 0.2, 0.3]], dtype=np.float32)
        lidar = replace(load_nav().lidar, beams=beams)
        theirs = mujoco_ranges(mujoco_model(rooms, config, 0), pose, beams, lidar.max_range)
        assert np.abs(scan(rooms, config, pose, lidar=lidar).clean.numpy() - theirs).max() < 1e-4

    def test_inside_an_obstacle_readings_stay_finite(self, config):
        rooms = rooms_by_hand(
            config,
            start=[0.0, 0.0, 0.0],
            goal=[3.0, 0.0],
            cylinders=[(0.0, 0.0, 0.5)],
            boxes=[(2.0, 0.0, 0.5, 0.5, 0.2)],
        )
        for place in ([0.0, 0.0, 0.1], [0.3, 0.0, 0.1], [2.0, 0.0, 0.0], [2.1, 0.1, 0.0]):
            scanner = scan(rooms, config, [place])
            for reading in (scanner.clean, scanner.clearance, scanner.nearest):
                assert torch.isfinite(reading).all()
            assert scanner.clearance[0] < 0
            assert scanner.clean.min() >= 0


def test_rooms_that_are_not_asked_keep_their_readings():
    config = load_rooms()
    rooms = draw(config, 6)
    scanner = scan(rooms, config, rooms.start)
    before = [t.clone() for t in (scanner.clean, scanner.clearance, scanner.nearest)]
    mask = torch.tensor([True, False] * 3)
    scanner.scan(mask, rooms.start + 0.05)
    for now, then in zip((scanner.clean, scanner.clearance, scanner.nearest), before, strict=True):
        assert torch.equal(now[~mask], then[~mask])
        assert (now[mask] != then[mask]).any()


class TestNoise:
    @pytest.fixture
    def rooms(self):
        config = load_rooms()
        return config, draw(config, 500)

    def noisy(self, rooms, *, std=0.0, dropout=0.0, num=500, **settings):
        config, drawn = rooms
        lidar = replace(load_nav().lidar, noise_std=std, dropout=dropout)
        part = Rooms(**{name: t[:num].contiguous() for name, t in drawn.tensors()})
        return scan(part, config, part.start, lidar=lidar, **settings)

    def test_without_it_both_scans_are_one(self, rooms):
        scanner = self.noisy(rooms)
        assert torch.equal(scanner.clean, scanner.noisy)

    def test_spread_and_mean(self, rooms):
        std = 0.05
        scanner = self.noisy(rooms, std=std)
        inner = scanner.clean < load_nav().lidar.max_range - 6 * std
        error = (scanner.noisy - scanner.clean)[inner]
        assert len(error) > 20_000
        assert error.mean().abs() < 4 * std / math.sqrt(len(error))
        assert error.std() == pytest.approx(std, rel=0.02)
        assert (error.abs() > 1.959964 * std).float().mean() == pytest.approx(0.05, abs=0.006)

    def test_dropout_reads_as_the_maximum_range(self, rooms):
        scanner = self.noisy(rooms, dropout=0.2)
        most = load_nav().lidar.max_range
        hit = scanner.clean < most
        dropped = scanner.noisy != scanner.clean
        assert (scanner.noisy[dropped] == most).all()
        assert dropped[hit].float().mean() == pytest.approx(0.2, abs=0.01)

    def test_stays_within_the_range(self, rooms):
        scanner = self.noisy(rooms, std=2.0)
        assert scanner.noisy.min() == 0.0
        assert scanner.noisy.max() == load_nav().lidar.max_range

    def test_clean_scan_and_clearance_are_untouched(self, rooms):
        noisy, clean = self.noisy(rooms, std=0.5, dropout=0.3), self.noisy(rooms)
        assert torch.equal(noisy.clean, clean.clean)
        assert torch.equal(noisy.clearance, clean.clearance)

    @pytest.mark.parametrize("key", ["step", "episode", "stream", "first_room"])
    def test_differs_by_everything_in_the_key(self, rooms, key):
        one, other = (self.noisy(rooms, std=0.05, **settings) for settings in ({}, {key: 1}))
        difference = (one.noisy - one.clean) - (other.noisy - other.clean)
        moved = (one.clean < 5.0) & (one.clean > 1.0)
        assert (difference[moved].abs() > 1e-5).float().mean() > 0.99
        if key != "first_room":  # there room i's numbers are room i + 1's
            paired = torch.stack([(s.noisy - s.clean)[moved] for s in (one, other)])
            assert torch.corrcoef(paired)[0, 1].abs() < 0.03

    def test_differs_by_beam_and_room(self, rooms):
        scanner = self.noisy(rooms, std=0.05)
        error = scanner.noisy - scanner.clean
        inner = (scanner.clean < 5.0) & (scanner.clean > 1.0)
        for one, other, both in (
            (error[1:], error[:-1], inner[1:] & inner[:-1]),
            (error[:, 1:], error[:, :-1], inner[:, 1:] & inner[:, :-1]),
        ):
            assert torch.corrcoef(torch.stack([one[both], other[both]]))[0, 1].abs() < 0.03

    def test_is_the_same_again_and_in_a_smaller_batch(self, rooms):
        one = self.noisy(rooms, std=0.05, dropout=0.1)
        assert torch.equal(one.noisy, self.noisy(rooms, std=0.05, dropout=0.1).noisy)
        assert torch.equal(one.noisy[:7], self.noisy(rooms, std=0.05, dropout=0.1, num=7).noisy)


def test_a_grazing_robot_reads_its_own_radius():
    config = load_rooms()
    x = config.size[0] / 2 - ROBOT.radius
    rooms = rooms_by_hand(config, start=[x, 0.0, 0.0], goal=[0.0, 0.0])
    scanner = scan(rooms, config, [[x, 0.0, 0.0]])
    assert scanner.clean.min().item() == pytest.approx(ROBOT.radius, abs=1e-5)
    assert scanner.clearance.item() == pytest.approx(ROBOT.radius, abs=1e-5)
