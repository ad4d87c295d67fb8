"""Batched physics behind one contract."""

from typing import Any

from navtask.errors import ConfigError
from navtask.physics.contract import Physics

BACKENDS = ("mujoco_c",)


def resolve_backend(name: str, device: str) -> str:
    """The back end that ``auto`` stands for on a device; ConfigError for one that doesn't exist or doesn't fit."""
    if name not in ("auto", *BACKENDS):
        raise ConfigError("physics.backend", name, "auto or " + " or ".join(BACKENDS), ("auto", *BACKENDS))
    if device != "cpu":
        raise ConfigError("device", device, "cpu: physics on a GPU is not built yet", ("cpu",))
    return "mujoco_c"


def build_physics(backend: str, model: Any, num_worlds: int, *, substeps: int, threads: int) -> Physics:
    """Worlds of ``model`` on a back end; ``threads`` matters to CPU engines only."""
    from navtask.physics.mujoco_c import MujocoC

    return {"mujoco_c": MujocoC}[backend](model, num_worlds, substeps, threads)
