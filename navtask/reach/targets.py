"""What each episode draws: a start posture and a target."""

from dataclasses import dataclass

import torch
import warp as wp

from navtask import random
from navtask.reach.arm import vec6

wp.set_module_options({"enable_backward": False})


@dataclass
class Targets:
    """Of N rooms."""

    start: torch.Tensor
    """(N, 6) angles of the joints, rad."""
    target: torch.Tensor
    """(N, 3) in the base's frame, m."""

    @classmethod
    def empty(cls, num: int, device: torch.device) -> "Targets":
        """Not drawn yet."""
        return cls(start=torch.zeros(num, 6, device=device), target=torch.zeros(num, 3, device=device))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor by name."""
        return {"start": self.start, "target": self.target}


@wp.kernel
def draw_targets(
    # which rooms
    mask: wp.array(dtype=wp.bool),
    # in
    episode: wp.array(dtype=wp.int32),
    source: random.Source,
    centre: wp.vec3,
    half_size: wp.vec3,
    home: vec6,
    spread: float,
    # out
    start: wp.array(dtype=vec6),
    target: wp.array(dtype=wp.vec3),
):
    """Uniform in the box, and uniform within the spread about the home posture, each joint for itself."""
    room = wp.tid()
    if not mask[room]:
        return
    key = random.key(source, room, episode[room])
    u = random.uniform4(key, random.TARGETS, 0)
    target[room] = centre + wp.cw_mul(half_size, wp.vec3(2.0 * u[0] - 1.0, 2.0 * u[1] - 1.0, 2.0 * u[2] - 1.0))
    q = home
    for j in range(6):
        q[j] = home[j] + spread * (2.0 * random.uniform4(key, random.POSTURES, j // 4)[j % 4] - 1.0)
    start[room] = q
