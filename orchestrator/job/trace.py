"""KL and learning rate of every mini-batch: as arrays and as a picture."""

import os
from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def write_trace(
    folder: Path, kl: list[torch.Tensor], learning_rate: list[torch.Tensor], desired_kl: tuple[float, float]
) -> None:
    """Write ``ppo_trace.npz`` with ``kl`` and ``learning_rate``, each (iterations, mini-batches of all epochs), and
    ``ppo_trace.png``; ``desired_kl`` is that of the first and of the last iteration."""
    arrays = {"kl": torch.stack(kl).numpy(), "learning_rate": torch.stack(learning_rate).numpy()}
    aside = folder / f".ppo_trace.{os.getpid()}"
    with open(aside, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    os.replace(aside, folder / "ppo_trace.npz")
    _draw(arrays["kl"], arrays["learning_rate"], desired_kl, folder / "ppo_trace.png")


def _draw(kl: np.ndarray, learning_rate: np.ndarray, desired_kl: tuple[float, float], path: Path) -> None:
    iterations = np.arange(kl.size) / kl.shape[1]
    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.semilogy(iterations, np.maximum(kl.ravel(), 1e-6), ".", markersize=1.5, alpha=0.5, label="mini-batch")
    upper.semilogy(np.arange(len(kl)) + 0.5, np.maximum(kl.mean(1), 1e-6), label="mean of the iteration")
    wanted = np.linspace(*desired_kl, len(kl))
    upper.fill_between(
        np.arange(len(kl)), wanted / 2, wanted * 2, alpha=0.15, color="green", label="desired: here the rate stays"
    )
    upper.set_ylabel("KL(old || new)")
    upper.legend(fontsize=8, loc="lower right")
    lower.semilogy(iterations, learning_rate.ravel(), linewidth=0.8)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("iteration")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    aside = path.with_name(f".{path.name}")
    figure.savefig(aside, format="png", dpi=110)
    os.replace(aside, path)
