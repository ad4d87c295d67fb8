"""A whole environment step as one CUDA graph: some two hundred launches that the host no longer makes one by one.

None of this has been run on a GPU yet. What can be checked without one is in ``tests/navtask/test_graph.py``: that a
step looks at no value on the host, and that every buffer stays where it is.
"""

import gc
from collections.abc import Callable
from typing import Any

import torch
import warp as wp
from tensordict import TensorDict

from navtask.errors import TermError

Outcome = tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]
"""What a step returns: observation, rewards, dones, extras."""

# Kernels are loaded, and torch's allocator finds its sizes, before anything is captured.
WARM_UP_STEPS = 2


class StepGraph:
    """``step``, captured at the first call and replayed from then on; what it returns is fresh, as if it had run.

    ``state`` and ``load`` undo the steps that warm up. Warp owns the capture, not torch: the engine's solver loops on
    the device, by a conditional node, and for that Warp ends the stream's capture and begins it anew, which torch's own
    memory pool for graphs, bound to one capture, would not survive. A pool bound to this thread does.
    """

    def __init__(
        self,
        step: Callable[[torch.Tensor], Outcome],
        state: Callable[[], dict[str, Any]],
        load: Callable[[dict[str, Any]], None],
    ):
        self._step = step
        self._state = state
        self._load = load
        self._graph: wp.Graph | None = None

    def __call__(self, actions: torch.Tensor) -> Outcome:
        """One control step under ``actions`` (N, A)."""
        if self._graph is None:
            self._capture(actions)
        self._actions.copy_(actions)
        wp.capture_launch(self._graph, stream=wp.stream_from_torch(actions.device))
        return _fresh(self._outcome)

    def _capture(self, actions: torch.Tensor) -> None:
        """Warm up, go back to where we were, and capture."""
        device = actions.device
        self._actions = actions.clone()
        self._pool = torch.cuda.MemPool()
        gc.collect()  # nothing is to be freed by chance while capturing
        # Not torch's default stream, which can't be captured. Torch and Warp launch on one and the same.
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with (
            torch.cuda.device(device),
            torch.cuda.stream(stream),
            torch.cuda.use_mem_pool(self._pool, device),
            wp.ScopedStream(wp.stream_from_torch(stream), sync_exit=True),
        ):
            before = self._state()
            for _ in range(WARM_UP_STEPS):
                self._step(self._actions)
            self._load(before)
            try:
                with wp.ScopedCapture(device=wp.device_from_torch(device)) as capture:
                    self._outcome = self._step(self._actions)
            except (RuntimeError, TermError) as error:
                raise RuntimeError(
                    "the step can't be captured as a CUDA graph; does a term look at a value, as .item() or an if do? "
                    f"physics.cuda_graph=false steps without one. ({error})"
                ) from error
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph = capture.graph


def _fresh(outcome: Outcome) -> Outcome:
    observation, rewards, dones, extras = outcome
    copies = {name: value.clone() for name, value in extras.items()}
    return observation.clone(), rewards.clone(), dones.clone(), copies
