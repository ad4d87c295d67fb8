"""One process per job on this machine, forked from a warm parent that has imported everything and touched no device."""

import fcntl
import importlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.process
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config import LauncherConfig
from orchestrator.devices import gpu_count
from orchestrator.errors import UserError
from orchestrator.job.spec import RESULT
from orchestrator.launch.base import JOB, MISTAKE, Exit, Launcher

PRELOAD = ("orchestrator.job.run",)
"""All that jobs need, imported once by the parent that they are forked from. Imports only: threads don't fork."""

WARM = "orchestrator.launch.warm:compile_kernels"
"""Run once, in a process of its own, before the first job; None: nothing."""

LOG, LOCK = "job.log", "job.lock"

ORPHAN_GRACE = 20.0
"""A job whose driver has died ends by itself within so many seconds, or by force then."""


@dataclass(frozen=True)
class Slot:
    """What one job may use."""

    cores: tuple[int, ...]
    gpus: tuple[int, ...]
    """One for each of its processes; none on a CPU."""


@dataclass
class LocalJob:
    """A started job."""

    process: multiprocessing.process.BaseProcess
    folder: Path
    slot: Slot
    oom_kills: int
    """Of this machine's kernel, when the job started."""
    kill_at: float | None = None
    """On the monotonic clock; set by ``stop``."""
    exit: Exit | None = None


class LocalLauncher(Launcher):
    """Slots are GPUs * ``jobs_per_gpu``, or CPU cores / ``threads_per_job``; with ``nproc_per_node`` a job of several
    processes takes as many GPUs."""

    def __init__(
        self,
        config: LauncherConfig,
        device: str,
        single: bool,
        entry: str = JOB,
        preload: Sequence[str] = PRELOAD,
        warm: str | None = WARM,
    ) -> None:
        cores = tuple(sorted(os.sched_getaffinity(0)))
        self._processes = config.nproc_per_node
        self.threads = min(config.threads_per_job or (len(cores) if single else self._processes), len(cores))
        slots = _gpu_slots(config, device, cores) if device.startswith("cuda") else _cpu_slots(cores, self.threads)
        self._free = slots[:1] if single else slots
        self.slots = len(self._free)
        self.where = (
            f"{self.slots} at a time, {len(self._free[0].cores)} core{'s'[: len(self._free[0].cores) > 1]} each"
            + (f", {self._processes} processes each" if self._processes > 1 else "")
        )
        self._entry, self._preload, self._warm = entry, tuple(preload), warm
        self._context = multiprocessing.get_context("forkserver")
        self._jobs: list[LocalJob] = []
        self._preparing: threading.Thread | None = None
        self._trouble: str | None = None

    def _prepare(self) -> None:
        """Start the warm parent; takes as long as the imports, so it is done in a thread."""
        try:
            self._context.set_forkserver_preload(["orchestrator.launch.detach", *self._preload])
            with _environment(_thread_settings(self.threads)):
                multiprocessing.forkserver.ensure_running()
            with tempfile.NamedTemporaryFile() as log:
                process = self._context.Process(target=_warm_up, args=(self._warm, log.name), daemon=True)
                process.start()
                process.join()
                if process.exitcode:
                    last = _last_line(Path(log.name))
                    self._trouble = f"preparing jobs failed with exit code {process.exitcode}: {last}"
        except (OSError, EOFError) as error:
            self._trouble = f"the process that jobs are forked from died ({error or 'while importing'})"

    def ready(self) -> bool:
        """Whether the warm parent is."""
        if self._preparing is None:
            self._preparing = threading.Thread(target=self._prepare, name="launcher", daemon=True)
            self._preparing.start()
        if self._preparing.is_alive():
            return False
        if self._trouble:
            raise RuntimeError(self._trouble)
        return True

    def start(self, folder: Path) -> LocalJob:
        """Fork a job."""
        if not self._free:
            raise RuntimeError("no slot is free")
        slot = self._free.pop(0)
        arguments = (self._entry, str(folder), slot, self.threads, self._processes, ORPHAN_GRACE)
        process = self._context.Process(target=_job, args=arguments, name=folder.name)
        with _environment(_thread_settings(self.threads)):  # should the parent have to be started again
            process.start()
        job = LocalJob(process, folder, slot, _oom_kills())
        self._jobs.append(job)
        return job

    def poll(self, handle: LocalJob) -> Exit | None:
        """How the job ended, once all its processes are gone."""
        if handle.exit is None:
            if handle.process.exitcode is None:
                if handle.kill_at is not None and time.monotonic() >= handle.kill_at:
                    self._signal(handle, signal.SIGKILL)
                return None
            # The job has ended, or the parent that would have told us has: either way nothing of it may be left.
            self._signal(handle, signal.SIGKILL)
            _wait_gone(handle.process.pid)
            handle.exit = _describe(handle)
            self._jobs.remove(handle)
            self._free.append(handle.slot)
        return handle.exit

    def stop(self, handle: LocalJob, grace: float) -> None:
        """SIGTERM to the job's process group, SIGKILL after ``grace``."""
        if handle.exit is not None:
            return
        deadline = time.monotonic() + grace
        first = handle.kill_at is None
        handle.kill_at = deadline if first else min(handle.kill_at or deadline, deadline)
        if grace <= 0:
            self._signal(handle, signal.SIGKILL)
        elif first:
            self._signal(handle, signal.SIGTERM)

    def sentinels(self) -> Sequence[Any]:
        """Ready when a job has ended."""
        return [job.process.sentinel for job in self._jobs]

    def close(self) -> None:
        """Kill what is left."""
        for job in list(self._jobs):
            self.stop(job, grace=0)
        for job in list(self._jobs):
            job.process.join(5)
            self.poll(job)

    @staticmethod
    def _signal(job: LocalJob, number: int) -> None:
        pid = job.process.pid
        assert pid is not None
        try:
            os.killpg(pid, number)
        except ProcessLookupError:  # gone, or so new that it has no group of its own yet
            if job.process.exitcode is None:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def _cpu_slots(cores: tuple[int, ...], threads: int) -> list[Slot]:
    return [Slot(cores[i : i + threads], ()) for i in range(0, len(cores) - threads + 1, threads)]


def _gpu_slots(config: LauncherConfig, device: str, cores: tuple[int, ...]) -> list[Slot]:
    gpus = [int(device.partition(":")[2])] if ":" in device else list(range(gpu_count()))
    size = config.nproc_per_node
    teams = [tuple(gpus[i : i + size]) for i in range(0, len(gpus) - size + 1, size)]
    number = len(teams) * config.jobs_per_gpu
    share = max(1, len(cores) // number)
    parts = [tuple(cores[(i * share + k) % len(cores)] for k in range(share)) for i in range(number)]
    return [Slot(parts[i], teams[i % len(teams)]) for i in range(number)]


def _thread_settings(threads: int) -> dict[str, str]:
    """Read when torch is imported, so they must be in the parent's environment. Idle OpenMP workers that spin would
    starve MuJoCo's own threads, hence passive."""
    pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {name: str(threads) for name in pools} | {"OMP_WAIT_POLICY": "passive"}


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _oom_kills() -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _wait_gone(pid: int | None) -> None:
    """Wait until the kernel has cleared a killed process group away (milliseconds)."""
    assert pid is not None
    for _ in range(50):
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)


def _describe(job: LocalJob) -> Exit:
    code = job.process.exitcode
    assert code is not None
    if code < 0:
        name = signal.Signals(-code).name
        memory = " (out of memory)" if -code == signal.SIGKILL and _oom_kills() > job.oom_kills else ""
        return Exit(None, -code, f"killed by {name}{memory}")
    last = _last_line(job.folder / LOG)
    if code == MISTAKE and last:
        return Exit(code, None, last.removeprefix("error: "))
    return Exit(code, None, f"exit code {code}{f': {last}' if code and last else ''}")


def _last_line(path: Path) -> str:
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""
    return ""


# What follows runs in the job's process.


def _warm_up(function: str | None, log: str) -> None:
    _print_to(Path(log))
    if function is not None:
        _load(function)()


def _job(entry: str, folder_name: str, slot: Slot, threads: int, processes: int, orphan_grace: float) -> None:
    os.setsid()
    folder = Path(folder_name)
    _print_to(folder / LOG)
    os.sched_setaffinity(0, slot.cores)
    if slot.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = _names(slot.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    threading.Thread(target=_end_with_driver, args=(orphan_grace,), name="driver-watch", daemon=True).start()
    lock = _lock(folder, patience=orphan_grace + 5)
    if (folder / RESULT).exists():
        sys.exit(0)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    try:
        code = _call(_load(entry), folder, processes)
    except UserError as error:
        print(f"error: {error}")
        code = MISTAKE
    os.close(lock)
    sys.stdout.flush()
    sys.exit(code)


def _call(function: Callable[[Path], int], folder: Path, processes: int) -> int:
    if processes == 1:
        return function(folder)
    from orchestrator.launch import torchrun  # brings much that a job of one process doesn't need

    return torchrun.run(function, folder, processes)


def _names(gpus: Sequence[int], visible: str | None) -> str:
    """What a job may see, in the words of ``CUDA_VISIBLE_DEVICES``: of those that we may, where that says which."""
    ours = [name.strip() for name in visible.split(",") if name.strip()] if visible is not None else None
    return ",".join(str(gpu) if ours is None else ours[gpu] for gpu in gpus)


def _print_to(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _load(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _end_with_driver(grace: float) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os.killpg(0, signal.SIGKILL)


def _lock(folder: Path, patience: float) -> int:
    """Hold the folder for this process. A job of a driver that died may still be writing its checkpoint here."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                with suppress(ValueError, ProcessLookupError):
                    os.killpg(int(os.pread(lock, 32, 0)), signal.SIGKILL)
            time.sleep(0.05)
        else:
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            return lock
