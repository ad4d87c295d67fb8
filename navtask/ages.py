"""Ages at which first episodes begin, so that their time-outs don't come in one burst."""

import torch
import warp as wp

from navtask import random

wp.set_module_options({"enable_backward": False})


@wp.kernel
def _draw(seed: int, stream: int, first_room: int, limit: int, ages: wp.array(dtype=wp.int64)):
    room = wp.tid()
    key = random.key(seed, stream, first_room + room, 0)
    ages[room] = wp.int64(random.uniform4(key, random.AGES, 0)[0] * float(limit))


def draw_ages(num: int, limit: int, device: torch.device, *, seed: int, stream: int, first_room: int) -> torch.Tensor:
    """(num,) int64, uniform on [0, limit); what a room draws depends on no other."""
    ages = torch.zeros(num, dtype=torch.int64, device=device)
    inputs = [seed, stream, first_room, limit, wp.from_torch(ages)]
    wp.launch(_draw, dim=num, inputs=inputs, device=str(device))
    return ages
