"""One training by several processes, as torchrun starts them; one process alone is the common case and costs nothing.

Each process has its own share of the rooms and a copy of the networks. They meet in every mini-batch (KL, gradients),
once a rollout (advantages), once an update (statistics, normalisers) and once an iteration (whether to stop); see
``PPO``. Process 0 is ``main``: it alone evaluates and writes files.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import distributed

from orchestrator.errors import UserError


@dataclass(frozen=True)
class Processes:
    """The processes that train one policy, seen from one of them; rank and sizes are torchrun's.

    All methods but ``share``, ``seed`` and ``close`` wait until every process has called them, so each process must
    call the same ones in the same order.
    """

    rank: int = 0
    local_rank: int = 0
    """On this machine."""
    world_size: int = 1
    local_world_size: int = 1
    device: str = "cpu"
    """Of this process."""

    @property
    def main(self) -> bool:
        """Whether this process evaluates and writes."""
        return self.rank == 0

    @property
    def multi_gpu_cfg(self) -> dict[str, int] | None:
        """What rsl_rl wants to know of them; None for one alone."""
        if self.world_size == 1:
            return None
        return {"global_rank": self.rank, "local_rank": self.local_rank, "world_size": self.world_size}

    def share(self, num_envs: int) -> int:
        """How many of the rooms each process has. Raises UserError where they can't be shared out evenly."""
        if num_envs % self.world_size:
            raise UserError(f"num_envs={num_envs}: expected a multiple of {self.world_size}, the number of processes")
        return num_envs // self.world_size

    def seed(self, seed: int) -> int:
        """What this process draws its actions and mini-batches from: ``seed`` itself in the main process."""
        return seed if self.main else int(np.random.SeedSequence([seed, self.rank]).generate_state(1)[0])

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """On each machine one process goes through a block before the others do: so kernels are compiled once."""
        if self.local_rank:
            self._wait()
        yield
        if not self.local_rank:
            self._wait()

    def sum(self, x: torch.Tensor) -> None:
        """Replace ``x`` by its sum over all processes."""
        if self.world_size > 1:
            distributed.all_reduce(x)

    def total(self, x: float) -> float:
        """Sum of ``x`` over all processes."""
        summed = self._tensor(x)
        self.sum(summed)
        return summed.item()

    def mean(self, x: float) -> float:
        """Of ``x`` over all processes."""
        return self.total(x) / self.world_size

    def max(self, x: int) -> int:
        """Of ``x`` over all processes."""
        largest = self._tensor(x)
        if self.world_size > 1:
            distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        return int(largest.item())

    def gather(self, x: Any) -> list[Any]:
        """Every process's ``x`` by rank, in the main process; elsewhere nothing."""
        if self.world_size == 1:
            return [x]
        gathered = [None] * self.world_size if self.main else None
        distributed.gather_object(x, gathered)
        return gathered or []

    def close(self) -> None:
        """Part company."""
        if self.world_size > 1:
            distributed.destroy_process_group()

    def _tensor(self, x: float) -> torch.Tensor:
        return torch.tensor(x, dtype=torch.float64, device=self.device)

    def _wait(self) -> None:
        if self.world_size > 1:
            distributed.barrier()


def join(device: str) -> Processes:
    """Meet the other processes that torchrun has started, or find that this one is alone.

    ``device`` is the config's; on CUDA the processes of a machine take one GPU each, in order. A launcher shows a job
    its own GPUs alone: where there is only one to be seen it is that one, whatever its number on the machine.
    """
    world_size, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", 1), ("RANK", 0)))
    if world_size == 1:
        only = device.startswith("cuda:") and torch.cuda.device_count() == 1
        return Processes(device="cuda:0" if only else device)
    local_rank, local_world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if device.startswith("cuda"):
        device = f"cuda:{local_rank}"
        torch.cuda.set_device(local_rank)
    distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    return Processes(rank, local_rank, world_size, local_world_size, device)
