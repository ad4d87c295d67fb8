"""Kernels that run step after step on the same tensors: recorded once, then started together."""

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

import torch
import warp as wp


@functools.cache
def start_warp() -> None:
    """Initialise Warp. Where there is no CUDA driver, without its warning of that: on such a machine it is no news."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        wp.init()
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # written by the library itself, not through Python
    try:
        wp.init()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class Recorded:
    """Kernels on fixed arguments, run one after the other by a call.

    A launch is (kernel, number of threads, arguments). Tensors are handed over as the kernel declares its arrays; what
    they hold at a call counts, so a call reads and writes them in place. Other arguments keep their present value.
    """

    def __init__(self, device: torch.device, *launches: tuple[wp.Kernel, int, Sequence[Any]]):
        start_warp()
        # A command knows only where its arrays lie.
        self._held = [_inputs(kernel, arguments) for kernel, _, arguments in launches]
        self._commands = [
            wp.launch(kernel, dim=num, inputs=inputs, device=str(device), record_cmd=True)
            for (kernel, num, _), inputs in zip(launches, self._held, strict=True)
        ]
        # On a CPU one by one they would cost ten microseconds each, most of it in Python. A graph does not.
        self._graph: wp.Graph | None = None
        if device.type == "cpu":
            with wp.ScopedCapture(device="cpu") as capture:
                self._launch_all()
            self._graph = capture.graph

    def _launch_all(self) -> None:
        for command in self._commands:
            command.launch()

    def __call__(self) -> None:
        """Run them all, in order."""
        if self._graph is not None:
            wp.capture_launch(self._graph)
        else:
            self._launch_all()


def _inputs(kernel: wp.Kernel, arguments: Sequence[Any]) -> list[Any]:
    declared = [argument.type for argument in kernel.adj.args]
    return [
        wp.from_torch(argument, dtype=type_.dtype) if isinstance(argument, torch.Tensor) else argument
        for type_, argument in zip(declared, arguments, strict=True)
    ]
