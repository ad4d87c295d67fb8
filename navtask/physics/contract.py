"""What a task asks of a physics engine: many worlds of one model, moved together."""

from abc import ABC, abstractmethod
from typing import Any

import torch


class Physics(ABC):
    """N independent worlds of one model, whose geoms may differ by world.

    Invariants, which one conformance suite checks for every implementation:

    - ``qpos`` (N, nq), ``qvel`` (N, nv) float32 and ``touching`` (N,) bool always belong to one instant: the end of the
      last ``step``, or the state given by the last ``reset`` of that world.
    - ``step`` advances only the worlds of ``active``; the others keep everything, bit for bit.
    - ``reset`` leaves nothing of a world's past behind (no warm start, no control), and no trace in other worlds.
    - A world whose state is not finite stays so, visibly, until it is reset; the others never notice.
    - Results don't depend on the number of worlds or of threads.
    - Masks are (N,) bool tensors on ``device``; nothing is returned that later changes but these live tensors.
    """

    num_worlds: int
    device: torch.device
    qpos: torch.Tensor
    qvel: torch.Tensor
    touching: torch.Tensor
    dropped: torch.Tensor
    """(1,) int64: in how many worlds, summed over steps and resets since it was last zeroed, the engine may have
    dropped contacts or constraints because its buffers were full. 0 for ever where buffers grow."""

    @abstractmethod
    def step(self, ctrl: torch.Tensor, active: torch.Tensor | None = None) -> None:
        """Hold ``ctrl`` (N, nu) for one control step, then compute kinematics and contacts at the new state."""

    @abstractmethod
    def reset(self, mask: torch.Tensor, qpos: torch.Tensor) -> None:
        """Put the masked worlds at rest at ``qpos`` (N, nq), contacts included."""

    @abstractmethod
    def set_geoms(
        self, mask: torch.Tensor, first: int, pos: torch.Tensor, size: torch.Tensor, quat: torch.Tensor
    ) -> None:
        """Move and resize the M geoms from index ``first`` on, in the masked worlds: pos and size (N, M, 3), quat
        (N, M, 4). Felt from the next ``reset`` or ``step`` of that world on. Boxes and cylinders of the world body,
        turned about the vertical alone."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here, as tensors."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Go on from a ``state()`` of an equal model and number of worlds."""
