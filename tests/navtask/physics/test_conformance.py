"""What every physics back end promises. To add one, write the class and add a line to BACKENDS."""

import math

import mujoco
import numpy as np
import pytest
import torch
from navsetup import clearance, load_nav, load_rooms, rooms_by_hand

from navtask.errors import ConfigError
from navtask.nav.robot import ROBOT
from navtask.nav.scene import GeomWriter, Slots, build_model, first_obstacle_geom
from navtask.physics import build_physics, resolve_backend

BACKENDS = [
    "mujoco_c",
]

CONTROL_DT, PHYSICS_DT = load_nav().control_dt, load_nav().physics_dt
SUBSTEPS = round(CONTROL_DT / PHYSICS_DT)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Worlds:
    """Worlds of one back end with obstacles made by hand, and short words for what the tests do with them."""

    def __init__(self, backend, num, *, threads=1, cylinders=(), boxes=()):
        self.config = load_rooms(obstacles=[4, 4])
        self.model = build_model(self.config, PHYSICS_DT)
        self.physics = build_physics(backend, self.model, num, substeps=SUBSTEPS, threads=threads)
        self.num = num
        self.everywhere = torch.ones(num, dtype=torch.bool)
        self.furnish(self.everywhere, cylinders=cylinders, boxes=boxes)
        self.put(self.everywhere, torch.zeros(num, 3))

    def furnish(self, mask, *, cylinders=(), boxes=()):
        self.rooms = rooms_by_hand(
            self.config, start=[0.0, 0.0, 0.0], goal=[1.0, 0.0], cylinders=cylinders, boxes=boxes, num=self.num
        )
        writer = GeomWriter(self.rooms, Slots.of(self.config))
        writer.write(mask)
        self.physics.set_geoms(mask, first_obstacle_geom(self.model), writer.pos, writer.size, writer.quat)

    def put(self, mask, qpos):
        self.physics.reset(mask, torch.as_tensor(qpos, dtype=torch.float32).expand(self.num, 3).contiguous())

    def drive(self, ctrl, steps=1, active=None):
        for _ in range(steps):
            self.physics.step(torch.as_tensor(ctrl, dtype=torch.float32).expand(self.num, 3).contiguous(), active)

    def now(self):
        return self.physics.qpos.clone(), self.physics.qvel.clone(), self.physics.touching.clone()


def same(one, other, rows=slice(None)):
    return all(torch.equal(a[rows], b[rows]) for a, b in zip(one, other, strict=True))


def random_ctrl(num, generator):
    return (torch.rand(num, 3, generator=generator) * 2 - 1) * torch.tensor([ROBOT.v_max, ROBOT.v_max, ROBOT.omega_max])


# About the origin, so close that whoever wanders about touches something soon.
FURNITURE = {
    "cylinders": [(0.7, 0.3, 0.3), (-0.6, -0.6, 0.4)],
    "boxes": [(0.3, -0.7, 0.3, 0.15, 0.7), (-0.4, 0.7, 0.5, 0.3, 2.0)],
}


def test_starts_where_it_is_put_and_at_rest(backend):
    worlds = Worlds(backend, 3)
    places = torch.tensor([[1.0, 2.0, 0.5], [-3.0, 0.0, -9.0], [0.0, 0.0, 0.0]])
    worlds.put(worlds.everywhere, places)
    assert torch.equal(worlds.physics.qpos, places)
    assert (worlds.physics.qvel == 0).all()
    assert not worlds.physics.touching.any()


def exact_motion(q, v, ctrl, lag):
    """One control step of m dv/dt = kv (u - v): v = u + (v0 - u) exp(-t kv / m), and its integral."""
    decay = np.exp(-CONTROL_DT / lag)
    return q + ctrl * CONTROL_DT + (v - ctrl) * lag * (1 - decay), ctrl + (v - ctrl) * decay


def servo_lags(model):
    """Mass over kv of each servo, the yaw's inertia that of a solid cylinder, s."""
    mass = model.body_mass[-1]
    return np.array([mass, mass, 0.5 * mass * ROBOT.radius**2]) / model.actuator_gainprm[:, 0]


def test_free_motion_is_the_exact_one(backend):
    worlds = Worlds(backend, 16)
    lag = servo_lags(worlds.model)
    assert lag[0] == pytest.approx(ROBOT.lag)
    generator = torch.Generator().manual_seed(0)
    q, v = np.zeros((16, 3)), np.zeros((16, 3))
    for _ in range(10):
        # Changes of speed that the servos' force is enough for.
        ctrl = (random_ctrl(16, generator) * 0.6).double()
        q, v = exact_motion(q, v, ctrl.numpy(), lag)
        worlds.drive(ctrl)
        assert np.abs(worlds.physics.qpos.numpy() - q)[:, :2].max() < 0.3e-3
        assert np.abs(worlds.physics.qpos.numpy() - q)[:, 2].max() < 1e-3
        assert np.abs(worlds.physics.qvel.numpy() - v).max() < 0.02
        q = worlds.physics.qpos.double().numpy()
        v = worlds.physics.qvel.double().numpy()


def test_turning_round_at_full_speed_is_the_exact_motion(backend):
    """The greatest change of speed there is: the servos must not overshoot."""
    worlds = Worlds(backend, 1)
    full = np.array([[ROBOT.v_max, 0.0, 0.0]])
    worlds.drive(torch.from_numpy(full), steps=3)
    q, v = worlds.physics.qpos.double().numpy(), worlds.physics.qvel.double().numpy()
    worlds.drive(torch.from_numpy(-full))
    q, v = exact_motion(q, v, -full, servo_lags(worlds.model))
    assert np.abs(worlds.physics.qpos.numpy() - q).max() < 3e-3
    assert np.abs(worlds.physics.qvel.numpy() - v).max() < 0.05


def test_states_are_float32_of_the_declared_shape(backend):
    worlds = Worlds(backend, 4)
    for tensor in (worlds.physics.qpos, worlds.physics.qvel):
        assert tensor.shape == (4, 3)
        assert tensor.dtype == torch.float32
    assert worlds.physics.touching.shape == (4,)
    assert worlds.physics.touching.dtype == torch.bool


OBSTACLE = {
    "cylinder": {"cylinders": [(0.0, 0.0, 0.4)]},
    "square box": {"boxes": [(0.0, 0.0, 0.4, 0.4, 0.0)]},
    "rotated box": {"boxes": [(0.0, 0.0, 0.5, 0.2, 0.6)]},
    "second cylinder": {"cylinders": [(3.0, 3.0, 0.2), (0.0, 0.0, 0.4)]},
    "second box": {"boxes": [(3.0, 3.0, 0.2, 0.2, 0.0), (0.0, 0.0, 0.3, 0.6, 0.3)]},
}


@pytest.mark.parametrize("kind", OBSTACLE)
def test_an_obstacle_stops_the_robot_from_every_side(backend, kind):
    worlds = Worlds(backend, 8, **OBSTACLE[kind])
    angles = torch.arange(8) * (2 * math.pi / 8) + 0.05
    direction = torch.stack([angles.cos(), angles.sin()], -1)
    worlds.put(worlds.everywhere, torch.cat([1.2 * direction, angles[:, None]], -1))
    ever = torch.zeros(8, dtype=torch.bool)
    for _ in range(15):
        worlds.drive(torch.cat([-direction, torch.zeros(8, 1)], -1))
        free = clearance(worlds.rooms, worlds.config, 0, worlds.physics.qpos[:, :2].numpy())[0]
        gap = torch.from_numpy(free) - ROBOT.radius
        # It touches exactly where it overlaps, and presses in by no more than contacts give way.
        assert torch.equal(worlds.physics.touching[gap.abs() > 1e-4], (gap < 0)[gap.abs() > 1e-4])
        assert gap.min() > -0.06
        ever |= worlds.physics.touching
    assert ever.all()


@pytest.mark.parametrize("across", [-3.0, 0.0, 3.0])
def test_walls_stop_the_robot(backend, across):
    worlds = Worlds(backend, 4)
    angles = torch.arange(4) * (math.pi / 2)
    outward = torch.stack([angles.cos(), angles.sin()], -1).round()
    along = torch.stack([-outward[:, 1], outward[:, 0]], -1)
    half = worlds.config.size[0] / 2
    start = outward * (half - 1.0) + along * across
    worlds.put(worlds.everywhere, torch.cat([start, torch.zeros(4, 1)], -1))
    worlds.drive(torch.cat([outward, torch.zeros(4, 1)], -1), steps=7)
    assert not worlds.physics.touching.any()
    worlds.drive(torch.cat([outward, torch.zeros(4, 1)], -1), steps=8)
    assert worlds.physics.touching.all()
    reached = (worlds.physics.qpos[:, :2] * outward).sum(-1)
    assert ((reached - (half - ROBOT.radius)).abs() < 0.035).all()


def test_contacts_agree_with_the_analytic_clearance(backend):
    """Thousands of poses, put there and read at once."""
    worlds = Worlds(backend, 500, **FURNITURE)
    rng = np.random.default_rng(0)
    for _ in range(4):
        poses = rng.uniform([-1.5, -1.5, -4], [1.5, 1.5, 4], (500, 3))
        worlds.put(worlds.everywhere, torch.from_numpy(poses))
        gap = clearance(worlds.rooms, worlds.config, 0, poses[:, :2])[0] - ROBOT.radius
        sure = np.abs(gap) > 1e-5
        assert (worlds.physics.touching.numpy() == (gap < 0))[sure].all()
        assert 0.2 < (gap < 0).mean() < 0.8


def test_moved_and_resized_obstacles_are_felt_at_once(backend):
    worlds = Worlds(backend, 4, cylinders=[(1.0, 0.0, 0.2)], boxes=[(-1.0, 0.0, 0.2, 0.2, 0.0)])
    here = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [2.0, 2.0, 0.0], [-2.0, 2.0, 0.0]])
    worlds.put(worlds.everywhere, here)
    assert worlds.physics.touching.tolist() == [True, True, False, False]
    # Moved to where the last two stand, and grown: their reach is felt as well.
    moved = torch.tensor([True, True, True, True])
    worlds.furnish(moved, cylinders=[(2.0, 2.9, 0.8)], boxes=[(-2.0, 3.1, 0.3, 1.0, 0.0)])
    worlds.put(worlds.everywhere, here)
    assert worlds.physics.touching.tolist() == [False, False, True, True]
    # Shrunk again.
    worlds.furnish(moved, cylinders=[(2.0, 2.9, 0.2)], boxes=[(-2.0, 3.1, 0.3, 0.2, 0.0)])
    worlds.drive([0.0, 0.0, 0.0])
    assert not worlds.physics.touching.any()


def test_a_grown_obstacle_stops_the_robot(backend):
    worlds = Worlds(backend, 1, cylinders=[(2.0, 0.0, 0.05)])
    worlds.furnish(worlds.everywhere, cylinders=[(2.0, 0.0, 1.0)])
    worlds.put(worlds.everywhere, [0.0, 0.9, 0.0])
    worlds.drive([1.5, 0.0, 0.0], steps=12)
    free = clearance(worlds.rooms, worlds.config, 0, worlds.physics.qpos[:, :2].numpy())[0]
    assert free.min() > ROBOT.radius - 0.05


def test_obstacles_of_one_world_are_not_felt_in_another(backend):
    worlds = Worlds(backend, 3)
    worlds.furnish(torch.tensor([False, True, False]), cylinders=[(0.0, 0.0, 0.5)])
    worlds.put(worlds.everywhere, torch.zeros(3, 3))
    assert worlds.physics.touching.tolist() == [False, True, False]


@pytest.mark.parametrize("rows", [[], [0], [3], [0, 5], [1, 2, 3, 4], list(range(6))])
def test_reset_of_a_subset_leaves_the_others_bit_for_bit(backend, rows):
    worlds, untouched = (Worlds(backend, 6, **FURNITURE) for _ in range(2))
    generator, again = (torch.Generator().manual_seed(0) for _ in range(2))
    for pair in ((worlds, generator), (untouched, again)):
        for _ in range(8):
            pair[0].drive(random_ctrl(6, pair[1]))
    mask = torch.zeros(6, dtype=torch.bool)
    mask[rows] = True
    worlds.put(mask, torch.full((6, 3), 3.5))
    assert same(worlds.now(), untouched.now(), ~mask)
    assert (worlds.physics.qpos[mask] == 3.5).all()
    assert (worlds.physics.qvel[mask] == 0).all()
    for _ in range(8):
        worlds.drive(random_ctrl(6, generator))
        untouched.drive(random_ctrl(6, again))
    assert same(worlds.now(), untouched.now(), ~mask)


def test_nothing_lives_on_over_a_reset(backend):
    """Pressed into an obstacle at full power before, or never moved: the same from the reset on, bit for bit."""
    worlds, fresh = (Worlds(backend, 3, **FURNITURE) for _ in range(2))
    worlds.put(worlds.everywhere, [0.0, 0.3, 0.0])
    worlds.drive([1.5, 0.0, 2.0], steps=10)
    assert worlds.physics.touching.all()
    place = [0.0, 0.25, 1.0]
    for each in (worlds, fresh):
        each.put(each.everywhere, place)
    assert same(worlds.now(), fresh.now())
    for _ in range(10):
        for each in (worlds, fresh):
            each.drive([1.0, 0.1, 0.3])
        assert same(worlds.now(), fresh.now())


def test_a_broken_world_stays_broken_and_alone_until_it_is_reset(backend):
    worlds, healthy = (Worlds(backend, 5, **FURNITURE) for _ in range(2))
    mask = torch.tensor([False, False, True, False, False])
    worlds.put(mask, torch.full((5, 3), math.nan))
    for k in range(5):
        for each in (worlds, healthy):
            each.drive([1.0, 0.3, 0.5])
        assert same(worlds.now(), healthy.now(), ~mask), k
        assert not torch.isfinite(worlds.physics.qpos[2]).all()
    for each in (worlds, healthy):
        each.put(mask, torch.zeros(5, 3))
    for _ in range(3):
        for each in (worlds, healthy):
            each.drive([1.0, 0.3, 0.5])
        assert same(worlds.now(), healthy.now())


def test_worlds_that_are_not_active_keep_everything(backend):
    worlds, free = (Worlds(backend, 5, **FURNITURE) for _ in range(2))
    generator, again = (torch.Generator().manual_seed(3) for _ in range(2))
    active = torch.tensor([True, False, True, False, False])
    for pair in ((worlds, generator), (free, again)):
        pair[0].drive(random_ctrl(5, pair[1]), steps=4)
    still = worlds.now()
    for _ in range(6):
        worlds.drive(random_ctrl(5, generator), active=active)
        free.drive(random_ctrl(5, again))
    assert same(worlds.now(), still, ~active)
    assert same(worlds.now(), free.now(), active)
    worlds.drive([1.0, 0.0, 0.0], active=torch.zeros(5, dtype=torch.bool))
    assert same(worlds.now(), still, ~active)


def test_results_depend_neither_on_threads_nor_on_the_number_of_worlds(backend):
    found = []
    for num, threads in ((32, 1), (32, 2), (32, 5), (4, 1)):
        worlds = Worlds(backend, num, threads=threads, **FURNITURE)
        generator = torch.Generator().manual_seed(0)
        for _ in range(20):
            worlds.drive(random_ctrl(32, generator)[:num])
        found.append(worlds.now())
    assert found[0][2].any()
    for other in found[1:]:
        rows = len(other[0])
        assert same([t[:rows] for t in found[0]], other)


def test_goes_on_exactly_from_a_state(backend):
    worlds = Worlds(backend, 6, **FURNITURE)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        worlds.drive(random_ctrl(6, generator))
    assert worlds.physics.touching.any()
    state, point = worlds.physics.state(), generator.get_state()
    expected = []
    for _ in range(10):
        worlds.drive(random_ctrl(6, generator))
        expected.append(worlds.now())
    elsewhere = Worlds(backend, 6, cylinders=[(0.0, 1.0, 0.2)])
    for each in (worlds, elsewhere):
        each.physics.load(state)
        generator.set_state(point)
        for then in expected:
            each.drive(random_ctrl(6, generator))
            assert same(each.now(), then)


def test_a_state_is_a_copy(backend):
    worlds = Worlds(backend, 2)
    worlds.drive([1.0, 0.0, 0.0])
    state = worlds.physics.state()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    worlds.furnish(worlds.everywhere, cylinders=[(0.0, 1.0, 0.2)])
    worlds.drive([1.0, 0.5, 0.0], steps=3)
    assert all(torch.equal(state[name], kept[name]) for name in state)


def test_ctrl_is_not_kept_by_reference(backend):
    worlds, other = (Worlds(backend, 2) for _ in range(2))
    ctrl = torch.ones(2, 3)
    worlds.physics.step(ctrl)
    ctrl.fill_(-1.0)
    worlds.physics.step(torch.ones(2, 3))
    other.drive([1.0, 1.0, 1.0], steps=2)
    assert same(worlds.now(), other.now())


class TestChoosing:
    def test_auto_is_mujoco_c_on_a_cpu(self):
        assert resolve_backend("auto", "cpu") == "mujoco_c"

    def test_an_unknown_back_end_is_refused(self):
        with pytest.raises(ConfigError, match=r"physics.backend='bullet'.*mujoco_c") as caught:
            resolve_backend("bullet", "cpu")
        assert "mujoco_c" in caught.value.candidates


def test_the_model_cannot_reset_itself():
    """The engine's own reset of bad states would hide them."""
    model = build_model(load_rooms(), PHYSICS_DT)
    assert model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET
