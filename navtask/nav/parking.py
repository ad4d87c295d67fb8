"""Where obstacle slots that a room doesn't use wait."""

# mypy: disable-error-code="valid-type"

import warp as wp

wp.set_module_options({"enable_backward": False})

PARKING = wp.constant(100.0)  # m: far outside, beyond every beam
APART = wp.constant(2.0)  # m: so that they cost no contact test


@wp.func
def park(
    room: int,
    slot: int,
    centre: wp.array2d(dtype=wp.vec2),
    half: wp.array2d(dtype=wp.vec2),
    axis: wp.array2d(dtype=wp.vec2),
):
    """Leave a slot of ``Rooms`` unused."""
    centre[room, slot] = wp.vec2(PARKING + APART * float(slot), PARKING)
    half[room, slot] = wp.vec2(0.0, 0.0)
    axis[room, slot] = wp.vec2(1.0, 0.0)
