"""What only MuJoCo Warp does: buffers of a fixed size, on a device, in a graph."""

import mujoco
import pytest
import torch
from worlds import Worlds

from navtask.nav.robot import ROBOT_XML
from navtask.physics import build_physics, mujoco_warp

pytestmark = pytest.mark.xdist_group("mujoco_warp")

CORNER = {"boxes": [(0.7, 0.0, 0.4, 0.4, 0.0), (0.0, 0.7, 0.4, 0.4, 0.0)]}


@pytest.mark.parametrize(
    ("contacts", "deep"),
    # Each world makes eight contacts with two boxes, and searches for the depth of two.
    [pytest.param(1, 1, id="contacts"), pytest.param(8, 1, id="deep contacts")],
)
def test_what_does_not_fit_is_counted_once_a_world_and_step_and_not_printed(contacts, deep, monkeypatch, capfd):
    monkeypatch.setattr(mujoco_warp, "FEWEST", 1)
    monkeypatch.setattr(mujoco_warp, "CONTACTS_PER_WORLD", contacts)
    monkeypatch.setattr(mujoco_warp, "DEEP_CONTACTS_PER_WORLD", deep)
    worlds = Worlds("mujoco_warp", 8, **CORNER)
    assert worlds.physics.dropped == 0
    worlds.drive([1.0, 1.0, 0.0], steps=5)
    assert 0 < worlds.physics.dropped <= 8 * 5
    assert "overflow" not in capfd.readouterr().out


def test_geoms_of_other_kinds_are_refused():
    spec = mujoco.MjSpec.from_file(str(ROBOT_XML))
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0.0, 0.0], contype=0, conaffinity=0)
    physics = build_physics("mujoco_warp", spec.compile(), 8, substeps=1, threads=1)
    everywhere, pos, size, quat = torch.ones(8).bool(), torch.zeros(8, 1, 3), torch.ones(8, 1, 3), torch.ones(8, 1, 4)
    with pytest.raises(ValueError, match="only boxes and cylinders"):
        physics.set_geoms(everywhere, 0, pos, size, quat)


def test_every_buffer_stays_where_it_is():
    """A graph holds addresses: what is replaced instead of overwritten goes on in a place that nobody looks at."""
    worlds = Worlds("mujoco_warp", 8, **CORNER)
    physics = worlds.physics

    def addresses():
        arrays = {**vars(physics._data), **vars(physics._data.contact), **vars(physics._model)}
        found = {name: array.ptr for name, array in arrays.items() if hasattr(array, "ptr")}
        return found | {name: getattr(physics, name).data_ptr() for name in ("qpos", "qvel", "touching")}

    before = addresses()
    worlds.drive([1.0, 1.0, 0.0], active=torch.arange(8) < 4)
    worlds.furnish(torch.arange(8) % 2 == 0, cylinders=[(1.0, 1.0, 0.3)])
    worlds.put(torch.arange(8) % 2 == 0, [1.0, 0.0, 0.0])
    physics.load(physics.state())
    assert addresses() == before
