"""Ages at which first episodes begin, so that their time-outs don't come in one burst."""

import torch
import warp as wp

from navtask import random

wp.set_module_options({"enable_backward": False})


@wp.kernel
def _draw(source: random.Source, limit: int, ages: wp.array(dtype=wp.int64)):
    room = wp.tid()
    ages[room] = wp.int64(random.uniform4(random.key(source, room, 0), random.AGES, 0)[0] * float(limit))


def draw_ages(num: int, limit: int, device: torch.device, source: random.Source) -> torch.Tensor:
    """(num,) int64, uniform on [0, limit); what a room draws depends on no other."""
    ages = torch.zeros(num, dtype=torch.int64, device=device)
    wp.launch(_draw, dim=num, inputs=[source, limit, wp.from_torch(ages)], device=str(device))
    return ages
