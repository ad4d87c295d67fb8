"""What every physics back end promises. To add one, write the class and add a line to BACKENDS."""

import math
import subprocess
import sys

import mujoco
import numpy as np
import pytest
import torch
from navsetup import clearance, load_rooms
from worlds import (
    CONTROL_DT,
    FURNITURE,
    OBSTACLE,
    PHYSICS_DT,
    Worlds,
    eight_directions,
    random_ctrl,
    same,
)

from navtask.errors import ConfigError
from navtask.nav.robot import ROBOT
from navtask.nav.scene import build_model
from navtask.physics import resolve_backend

BACKENDS = [
    "mujoco_c",
    # Its kernels take half a minute to compile: one worker does, for all tests.
    pytest.param("mujoco_warp", marks=pytest.mark.xdist_group("mujoco_warp")),
]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_starts_where_it_is_put_and_at_rest(backend):
    worlds = Worlds(backend, 8)
    places = torch.tensor([[1.0, 2.0, 0.5], [-3.0, 0.0, -9.0], [0.0, 0.0, 0.0], [3.0, -4.0, 7.0]]).repeat(2, 1)
    worlds.put(worlds.everywhere, places)
    assert torch.equal(worlds.qpos, places)
    assert (worlds.qvel == 0).all()
    assert not worlds.touching.any()


def exact_motion(q, v, ctrl, lag):
    """One control step of m dv/dt = kv (u - v): v = u + (v0 - u) exp(-t kv / m), and its integral."""
    decay = np.exp(-CONTROL_DT / lag)
    return q + ctrl * CONTROL_DT + (v - ctrl) * lag * (1 - decay), ctrl + (v - ctrl) * decay


def servo_lags(model):
    """Mass over kv of each servo, the yaw's inertia that of a solid cylinder, s."""
    mass = model.body_mass[-1]
    return np.array([mass, mass, 0.5 * mass * ROBOT.radius**2]) / model.actuator_gainprm[:, 0]


def test_free_motion_is_the_exact_one(backend):
    worlds = Worlds(backend, 32)
    lag = servo_lags(worlds.model)
    assert lag[0] == pytest.approx(ROBOT.lag)
    generator = torch.Generator().manual_seed(0)
    q, v = np.zeros((32, 3)), np.zeros((32, 3))
    for _ in range(10):
        # Changes of speed that the servos' force is enough for.
        ctrl = (random_ctrl(32, generator) * 0.6).double()
        q, v = exact_motion(q, v, ctrl.numpy(), lag)
        worlds.drive(ctrl)
        assert np.abs(worlds.qpos.numpy() - q)[:, :2].max() < 0.3e-3
        assert np.abs(worlds.qpos.numpy() - q)[:, 2].max() < 1e-3
        assert np.abs(worlds.qvel.numpy() - v).max() < 0.02
        q = worlds.qpos.double().numpy()
        v = worlds.qvel.double().numpy()


def test_turning_round_at_full_speed_is_the_exact_motion(backend):
    """The greatest change of speed there is: the servos must not overshoot."""
    worlds = Worlds(backend, 1)
    full = np.array([[ROBOT.v_max, 0.0, 0.0]])
    worlds.drive(torch.from_numpy(full), steps=3)
    q, v = worlds.qpos.double().numpy(), worlds.qvel.double().numpy()
    worlds.drive(torch.from_numpy(-full))
    q, v = exact_motion(q, v, -full, servo_lags(worlds.model))
    assert np.abs(worlds.qpos.numpy() - q).max() < 3e-3
    assert np.abs(worlds.qvel.numpy() - v).max() < 0.05


def test_states_are_float32_of_the_declared_shape(backend):
    worlds = Worlds(backend, 8)
    for tensor in (worlds.qpos, worlds.qvel):
        assert tensor.shape == (8, 3)
        assert tensor.dtype == torch.float32
    assert worlds.touching.shape == (8,)
    assert worlds.touching.dtype == torch.bool


def press_on(worlds, start, direction, steps):
    """Drive from ``start`` (8, 2) along ``direction``; touch when, and only when, something is there."""
    angles = torch.atan2(direction[:, 1], direction[:, 0])
    worlds.put(worlds.everywhere, torch.cat([start, angles[:, None]], -1))
    assert not worlds.touching.any()
    ever = torch.zeros(8, dtype=torch.bool)
    for _ in range(steps):
        worlds.drive(torch.cat([direction, torch.zeros(8, 1)], -1))
        free = clearance(worlds.rooms, worlds.config, 0, worlds.qpos[:, :2].numpy())[0]
        gap = torch.from_numpy(free) - ROBOT.radius
        # It touches exactly where it overlaps, and presses in by no more than contacts give way.
        assert torch.equal(worlds.touching[gap.abs() > 1e-4], (gap < 0)[gap.abs() > 1e-4])
        assert gap.min() > -0.06
        ever |= worlds.touching
    assert ever.all()


@pytest.mark.parametrize("kind", OBSTACLE)
def test_an_obstacle_stops_the_robot_from_every_side(backend, kind):
    worlds = Worlds(backend, 8, **OBSTACLE[kind])
    _, direction = eight_directions()
    press_on(worlds, 1.2 * direction, -direction, 15)


def test_walls_and_corners_stop_the_robot_in_every_direction(backend):
    worlds = Worlds(backend, 8)
    _, direction = eight_directions()
    half = worlds.config.size[0] / 2
    # From a metre inside the place where the ray from the middle meets the wall.
    start = direction * (half / direction.abs().amax(-1, keepdim=True) - 1.0)
    press_on(worlds, start, direction, 15)


@pytest.mark.parametrize("across", [-4.0, 4.0])
def test_walls_stop_the_robot_along_their_length(backend, across):
    worlds = Worlds(backend, 8)
    angles = torch.arange(8) * (math.pi / 2)
    outward = torch.stack([angles.cos(), angles.sin()], -1).round()
    along = torch.stack([-outward[:, 1], outward[:, 0]], -1)
    half = worlds.config.size[0] / 2
    press_on(worlds, outward * (half - 1.0) + along * across, outward, 15)
    reached = (worlds.qpos[:, :2] * outward).sum(-1)
    assert ((reached - (half - ROBOT.radius)).abs() < 0.035).all()


# Between which depths no contact is missed, m. Other depths are hardly ever read: a robot that drives into something is
# deeper than a millimetre at the end of the step, and no robot gets in by ten centimetres.
SEEN = {"mujoco_c": (1e-5, math.inf), "mujoco_warp": (2e-3, 0.1)}


def test_contacts_agree_with_the_analytic_clearance(backend):
    """Thousands of poses, put there and read at once."""
    shallow, deep = SEEN[backend]
    worlds = Worlds(backend, 32, **FURNITURE)
    rng = np.random.default_rng(0)
    poses = rng.uniform([-1.5, -1.5, -4], [1.5, 1.5, 4], (64, 32, 3))
    gap = clearance(worlds.rooms, worlds.config, 0, poses[..., :2])[0] - ROBOT.radius
    assert 0.2 < (gap < 0).mean() < 0.8
    for there, expected in zip(poses, gap, strict=True):
        worlds.put(worlds.everywhere, torch.from_numpy(there))
        sure = (expected > 1e-5) | ((expected < -shallow) & (expected > -deep))
        assert (worlds.touching.numpy() == (expected < 0))[sure].all()


def test_moved_and_resized_obstacles_are_felt_at_once(backend):
    worlds = Worlds(backend, 8, cylinders=[(1.0, 0.0, 0.2)], boxes=[(-1.0, 0.0, 0.2, 0.2, 0.0)])
    here = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [2.0, 2.0, 0.0], [-2.0, 2.0, 0.0]]).repeat(2, 1)
    worlds.put(worlds.everywhere, here)
    assert worlds.touching.tolist() == [True, True, False, False] * 2
    # Moved to where the last two stand, and grown: their reach is felt as well.
    worlds.furnish(worlds.everywhere, cylinders=[(2.0, 2.9, 0.8)], boxes=[(-2.0, 3.1, 0.3, 1.0, 0.0)])
    worlds.put(worlds.everywhere, here)
    assert worlds.touching.tolist() == [False, False, True, True] * 2
    # Shrunk again.
    worlds.furnish(worlds.everywhere, cylinders=[(2.0, 2.9, 0.2)], boxes=[(-2.0, 3.1, 0.3, 0.2, 0.0)])
    worlds.drive([0.0, 0.0, 0.0])
    assert not worlds.touching.any()


def test_a_grown_obstacle_stops_the_robot(backend):
    worlds = Worlds(backend, 1, cylinders=[(2.0, 0.0, 0.05)])
    worlds.furnish(worlds.everywhere, cylinders=[(2.0, 0.0, 1.0)])
    worlds.put(worlds.everywhere, [0.0, 0.9, 0.0])
    worlds.drive([1.5, 0.0, 0.0], steps=12)
    free = clearance(worlds.rooms, worlds.config, 0, worlds.qpos[:, :2].numpy())[0]
    assert free.min() > ROBOT.radius - 0.05


def test_obstacles_of_one_world_are_not_felt_in_another(backend):
    worlds = Worlds(backend, 8)
    here = torch.tensor([False, True, False, False, True, False, False, True])
    worlds.furnish(here, cylinders=[(0.0, 0.0, 0.5)])
    worlds.put(worlds.everywhere, torch.zeros(8, 3))
    assert torch.equal(worlds.touching, here)


@pytest.mark.parametrize("rows", [[], [0], [3], [0, 7], [1, 2, 3, 4, 5, 6], list(range(8))])
def test_reset_of_a_subset_leaves_the_others_bit_for_bit(backend, rows):
    worlds, untouched = (Worlds(backend, 8, **FURNITURE) for _ in range(2))
    generator, again = (torch.Generator().manual_seed(0) for _ in range(2))
    for pair in ((worlds, generator), (untouched, again)):
        for _ in range(8):
            pair[0].drive(random_ctrl(8, pair[1]))
    mask = torch.zeros(8, dtype=torch.bool)
    mask[rows] = True
    worlds.put(mask, torch.full((8, 3), 3.5))
    assert same(worlds.now(), untouched.now(), ~mask)
    assert (worlds.qpos[mask] == 3.5).all()
    assert (worlds.qvel[mask] == 0).all()
    for _ in range(8):
        worlds.drive(random_ctrl(8, generator))
        untouched.drive(random_ctrl(8, again))
    assert same(worlds.now(), untouched.now(), ~mask)


def test_nothing_lives_on_over_a_reset(backend):
    """Pressed into an obstacle at full power before, or never moved: the same from the reset on, bit for bit."""
    worlds, fresh = (Worlds(backend, 8, **FURNITURE) for _ in range(2))
    worlds.put(worlds.everywhere, [0.0, 0.3, 0.0])
    worlds.drive([1.5, 0.0, 2.0], steps=10)
    assert worlds.touching.all()
    place = [0.0, 0.25, 1.0]
    for each in (worlds, fresh):
        each.put(each.everywhere, place)
    assert same(worlds.now(), fresh.now())
    for _ in range(10):
        for each in (worlds, fresh):
            each.drive([1.0, 0.1, 0.3])
        assert same(worlds.now(), fresh.now())


def test_a_broken_world_stays_broken_and_alone_until_it_is_reset(backend):
    worlds, healthy = (Worlds(backend, 8, **FURNITURE) for _ in range(2))
    mask = torch.arange(8) == 2
    worlds.put(mask, torch.full((8, 3), math.nan))
    for k in range(5):
        for each in (worlds, healthy):
            each.drive([1.0, 0.3, 0.5])
        assert same(worlds.now(), healthy.now(), ~mask), k
        assert not torch.isfinite(worlds.qpos[2]).all()
    for each in (worlds, healthy):
        each.put(mask, torch.zeros(8, 3))
    for _ in range(3):
        for each in (worlds, healthy):
            each.drive([1.0, 0.3, 0.5])
        assert same(worlds.now(), healthy.now())


def test_worlds_that_are_not_active_keep_everything(backend):
    worlds, free = (Worlds(backend, 8, **FURNITURE) for _ in range(2))
    generator, again = (torch.Generator().manual_seed(3) for _ in range(2))
    active = torch.arange(8) % 3 == 0
    for pair in ((worlds, generator), (free, again)):
        pair[0].drive(random_ctrl(8, pair[1]), steps=4)
    still = worlds.now()
    for _ in range(6):
        worlds.drive(random_ctrl(8, generator), active=active)
        free.drive(random_ctrl(8, again))
    assert same(worlds.now(), still, ~active)
    assert same(worlds.now(), free.now(), active)
    worlds.drive([1.0, 0.0, 0.0], active=torch.zeros(8, dtype=torch.bool))
    assert same(worlds.now(), still, ~active)


def test_worlds_that_stood_still_go_on_as_if_they_never_had(backend):
    """Pressed into an obstacle, where the engine has more to remember than place and speed."""
    worlds, twin = (Worlds(backend, 8, **FURNITURE) for _ in range(2))
    still = torch.arange(8) % 2 == 0
    for each in (worlds, twin):
        each.put(each.everywhere, [0.0, 0.3, 0.0])
        each.drive([1.5, 0.0, 2.0], steps=5)
        assert each.touching.all()
    worlds.drive([-1.0, 1.0, 0.5], steps=5, active=~still)
    for each in (worlds, twin):
        each.drive([1.0, 0.2, -1.0], steps=3)
    assert same(worlds.now(), twin.now(), still)
    assert not same(worlds.now(), twin.now(), ~still)


def test_results_depend_neither_on_threads_nor_on_the_number_of_worlds(backend):
    found = []
    for num, threads in ((32, 1), (32, 2), (32, 5), (8, 1), (1, 1)):
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
    worlds = Worlds(backend, 8, **FURNITURE)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        worlds.drive(random_ctrl(8, generator))
    assert worlds.touching.any()
    state, point = worlds.physics.state(), generator.get_state()
    expected = []
    for _ in range(10):
        worlds.drive(random_ctrl(8, generator))
        expected.append(worlds.now())
    elsewhere = Worlds(backend, 8, cylinders=[(0.0, 1.0, 0.2)])
    for each in (worlds, elsewhere):
        each.physics.load(state)
        generator.set_state(point)
        for then in expected:
            each.drive(random_ctrl(8, generator))
            assert same(each.now(), then)


def test_a_state_is_a_copy(backend):
    worlds = Worlds(backend, 8)
    worlds.drive([1.0, 0.0, 0.0])
    state = worlds.physics.state()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    worlds.furnish(worlds.everywhere, cylinders=[(0.0, 1.0, 0.2)])
    worlds.drive([1.0, 0.5, 0.0], steps=3)
    assert all(torch.equal(state[name], kept[name]) for name in state)


def test_ctrl_is_not_kept_by_reference(backend):
    worlds, other = (Worlds(backend, 8) for _ in range(2))
    ctrl = torch.ones(8, 3)
    worlds.physics.step(ctrl)
    ctrl.fill_(-1.0)
    worlds.physics.step(torch.ones(8, 3))
    other.drive([1.0, 1.0, 1.0], steps=2)
    assert same(worlds.now(), other.now())


def test_every_contact_is_kept(backend):
    """Pressed into a corner of two boxes, every world at once."""
    worlds = Worlds(backend, 8, boxes=[(0.7, 0.0, 0.4, 0.4, 0.0), (0.0, 0.7, 0.4, 0.4, 0.0)])
    worlds.drive([1.0, 1.0, 0.0], steps=5)
    assert worlds.touching.all()
    assert worlds.physics.dropped == 0


class TestChoosing:
    @pytest.mark.parametrize(
        ("name", "device", "chosen"),
        [
            ("auto", "cpu", "mujoco_c"),
            ("auto", "cuda", "mujoco_warp"),
            ("auto", "cuda:1", "mujoco_warp"),
            ("mujoco_c", "cpu", "mujoco_c"),
            ("mujoco_warp", "cpu", "mujoco_warp"),
            ("mujoco_warp", "cuda:0", "mujoco_warp"),
        ],
    )
    def test_by_device(self, name, device, chosen):
        assert resolve_backend(name, device) == chosen

    def test_mujoco_c_does_not_run_on_a_gpu(self):
        with pytest.raises(ConfigError, match=r"physics.backend='mujoco_c'.*mujoco_warp on device cuda"):
            resolve_backend("mujoco_c", "cuda")

    def test_costs_no_import_of_torch(self):
        """The orchestrator asks for names before anything heavy is needed."""
        code = "import sys, navtask.physics as p; p.resolve_backend('auto', 'cpu'); sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    def test_an_unknown_back_end_is_refused(self):
        with pytest.raises(ConfigError, match=r"physics.backend='bullet'.*mujoco_c") as caught:
            resolve_backend("bullet", "cpu")
        assert set(caught.value.candidates) == {"auto", "mujoco_c", "mujoco_warp"}


def test_the_model_cannot_reset_itself():
    """The engine's own reset of bad states would hide them."""
    model = build_model(load_rooms(), PHYSICS_DT)
    assert model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET
