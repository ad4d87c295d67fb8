"""What the CPU engine is spared at a reset: deriving constants that the package can tell it."""

import mujoco
import numpy as np
import pytest
import torch
from mujoco.batch import Batch
from navsetup import draw, load_nav, load_rooms

from navtask.nav.scene import GeomWriter, Slots, build_model, first_obstacle_geom
from navtask.physics.mujoco_c import MujocoC

NUM = 64
EVERYWHERE = torch.ones(NUM, dtype=torch.bool)
FIELDS = ("geom_pos", "geom_size", "geom_quat")


@pytest.fixture(params=["open", "dense", "barn"])
def furnished(request):
    """(model, geom fields, poses in free and in occupied places) of rooms of a kind."""
    config = load_rooms(request.param)
    rooms = draw(config, NUM)
    writer = GeomWriter(rooms, Slots.of(config))
    writer.write(EVERYWHERE)
    half = torch.tensor([*config.size, 2 * np.pi]) / 2
    poses = (2 * torch.rand(NUM, 3, generator=torch.Generator().manual_seed(0)) - 1) * half
    return build_model(config, load_nav().physics_dt), (writer.pos, writer.size, writer.quat), poses


def test_what_is_derived_of_geoms_is_what_the_engine_derives(furnished):
    model, geoms, _ = furnished
    worlds = MujocoC(model, NUM, 1, 1)
    worlds.set_geoms(EVERYWHERE, first_obstacle_geom(model), *geoms)
    names = ("geom_aabb", "geom_rbound", "geom_sameframe", "bvh_aabb")
    written = {name: worlds._batch.expand(name).copy() for name in names}
    worlds._batch.set_const()
    for name in names:
        assert np.allclose(written[name], worlds._batch.expand(name), rtol=0, atol=1e-13), name


def test_contacts_and_motion_are_those_of_the_engine_with_all_it_has(furnished):
    model, geoms, poses = furnished
    first = first_obstacle_geom(model)
    worlds = MujocoC(model, NUM, 5, 1)
    worlds.set_geoms(EVERYWHERE, first, *geoms)
    worlds.reset(EVERYWHERE, poses)
    batch = Batch(model, nsim=NUM, nthread=1)
    for name, values in zip(FIELDS, geoms, strict=True):
        batch.expand(name)[:, first : first + values.shape[1]] = values.numpy()
    batch.set_const()
    contacts = batch.bind("ncon")
    batch.bind("qpos")[:] = poses.numpy()
    batch.forward(stage=mujoco.mjtStage.mjSTAGE_VEL.value)
    touched = 0
    for _ in range(10):
        touched += int((contacts > 0).sum())
        assert np.array_equal(worlds.touching.numpy(), contacts > 0)
        assert np.array_equal(worlds.qpos.numpy(), batch.bind("qpos").astype(np.float32))
        batch.bind("ctrl")[:] = 1.0
        batch.step(nstep=5, stage=mujoco.mjtStage.mjSTAGE_VEL.value)
        worlds.step(torch.ones(NUM, 3))
    assert 20 < touched < 10 * NUM - 20


def test_geoms_that_it_does_not_know_are_refused():
    spec = mujoco.MjSpec()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(0.1, 0, 0))
    spec.worldbody.add_body().add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE)
    spec.bodies[1].add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(0.1, 0, 0))
    worlds = MujocoC(spec.compile(), 2, 1, 1)
    given = torch.zeros(2, 1, 3), torch.ones(2, 1, 3), torch.ones(2, 1, 4)
    with pytest.raises(ValueError, match="only boxes and cylinders"):
        worlds.set_geoms(torch.ones(2, dtype=torch.bool), 0, *given)
