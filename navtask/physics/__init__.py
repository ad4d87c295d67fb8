"""Batched physics behind one contract.

Cheap to import: an engine is imported when its worlds are built.
"""

from typing import TYPE_CHECKING, Any

from navtask.errors import ConfigError

if TYPE_CHECKING:
    from navtask.physics.contract import Physics

BACKENDS = ("mujoco_c", "mujoco_warp")


def resolve_backend(name: str, device: str) -> str:
    """The back end that ``auto`` stands for on a device; ConfigError for one that doesn't exist or doesn't fit.

    MuJoCo C runs on the CPU alone. MuJoCo Warp runs there too, on one thread and half as fast, to be compared with it.
    """
    if name not in ("auto", *BACKENDS):
        raise ConfigError("physics.backend", name, "auto or " + " or ".join(BACKENDS), ("auto", *BACKENDS))
    on_cpu = device == "cpu"
    if name == "auto":
        return "mujoco_c" if on_cpu else "mujoco_warp"
    if name == "mujoco_c" and not on_cpu:
        raise ConfigError("physics.backend", name, f"auto or mujoco_warp on device {device}", ("auto", "mujoco_warp"))
    return name


def build_physics(
    backend: str, model: Any, num_worlds: int, *, substeps: int, threads: int, device: str = "cpu"
) -> "Physics":
    """Worlds of ``model`` on a back end; ``threads`` matters to MuJoCo C only."""
    if backend == "mujoco_c":
        from navtask.physics.mujoco_c import MujocoC

        return MujocoC(model, num_worlds, substeps, threads)
    import torch

    from navtask.physics.mujoco_warp import MujocoWarp

    return MujocoWarp(model, num_worlds, substeps, torch.device(device))
