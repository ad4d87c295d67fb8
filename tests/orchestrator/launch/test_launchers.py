"""What every launcher promises. Adding one: add a line to LAUNCHERS."""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import harness
import pytest

from orchestrator.config import LauncherConfig
from orchestrator.job.spec import TrialSpec, write
from orchestrator.launch.base import MISTAKE, Exit, Handle, Launcher
from orchestrator.launch.local import LocalLauncher, _names


def local(entry: str = "fake_jobs:train", nproc_per_node: int = 1) -> Launcher:
    config = LauncherConfig(
        class_name="orchestrator.launch.local:LocalLauncher",
        threads_per_job=1,
        nproc_per_node=nproc_per_node,
        jobs_per_gpu=1,
        max_retries=1,
        hang_timeout=60,
    )
    return LocalLauncher(config, "cpu", single=False, entry=entry, preload=harness.PRELOAD, warm=None)


def torchrun(entry: str = "fake_jobs:train") -> Launcher:
    return local(entry, nproc_per_node=2)


LAUNCHERS = [local, torchrun]


@pytest.fixture(params=LAUNCHERS)
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Launcher]]:
    made: list[Launcher] = []

    def ready(**options: str) -> Launcher:
        launcher = request.param(**options)
        made.append(launcher)
        wait_for(launcher.ready)
        return launcher

    yield ready
    for launcher in made:
        launcher.close()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory):
    return harness.configure(tmp_path_factory.mktemp("out"), "algorithm.iterations=4", "evaluation.every=2")


@pytest.fixture
def trial(tmp_path: Path, config) -> Callable[..., Path]:
    def create(number: int = 0, **behaviour: object) -> Path:
        harness.behave(tmp_path, **{str(number): behaviour})
        folder = tmp_path / f"trial_{number:04d}"
        write(TrialSpec(study="s", number=number, seed=1, params={}, folder=folder, config=config))
        return folder

    return create


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def outcome(launcher: Launcher, handle: Handle) -> Exit:
    wait_for(lambda: launcher.poll(handle) is not None)
    ended = launcher.poll(handle)
    assert ended is not None
    return ended


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_job_ends_with_its_exit_code_and_leaves_its_log(make, trial) -> None:
    launcher, folder = make(), trial()
    handle = launcher.start(folder)
    first = outcome(launcher, handle)
    assert (first.code, first.signal) == (0, None)
    assert launcher.poll(handle) is first
    assert (folder / "result.json").exists()
    assert "training from 0" in (folder / "job.log").read_text()


def test_no_more_jobs_than_slots(make, trial) -> None:
    launcher = make()
    assert launcher.slots >= 1
    for number in range(launcher.slots):
        launcher.start(trial(number, seconds=0.05))
    with pytest.raises(RuntimeError, match="slot"):
        launcher.start(trial(launcher.slots))


def test_a_job_killed_by_a_signal_is_told_by_its_name(make, trial) -> None:
    launcher = make()
    ended = outcome(launcher, launcher.start(trial(do="crash")))
    assert ended.signal == signal.SIGSEGV
    assert "SIGSEGV" in ended.reason


def test_an_exception_is_told_by_its_last_line(make, trial) -> None:
    launcher = make()
    ended = outcome(launcher, launcher.start(trial(do="raise")))
    assert ended.code == 1
    assert "no such room" in ended.reason


def test_a_mistake_is_told_in_its_own_words(make, trial) -> None:
    launcher = make()
    ended = outcome(launcher, launcher.start(trial(do="mistake")))
    assert ended == Exit(MISTAKE, None, "policy.hidden_dims=[8]: expected [16, 16], as in its checkpoint")


def test_stop_lets_a_job_checkpoint(make, trial) -> None:
    launcher, folder = make(), trial(seconds=0.2)
    handle = launcher.start(folder)
    wait_for((folder / "metrics.jsonl").exists)
    launcher.stop(handle, grace=10)
    assert outcome(launcher, handle).code == 143
    assert (folder / "checkpoint").exists()
    assert not (folder / "result.json").exists()


def test_stop_kills_what_does_not_listen(make, trial) -> None:
    launcher, folder = make(entry="fake_jobs:deaf"), trial()
    handle = launcher.start(folder)
    wait_for((folder / "deaf").exists)
    began = time.monotonic()
    launcher.stop(handle, grace=0.3)
    assert outcome(launcher, handle).signal == signal.SIGKILL
    assert time.monotonic() - began < 3


def test_a_shorter_grace_overrules_a_longer(make, trial) -> None:
    launcher, folder = make(entry="fake_jobs:deaf"), trial()
    handle = launcher.start(folder)
    wait_for((folder / "deaf").exists)
    launcher.stop(handle, grace=60)
    launcher.stop(handle, grace=0)
    assert outcome(launcher, handle).signal == signal.SIGKILL
    launcher.stop(handle, grace=0)  # and nothing happens to one that has ended


def test_nothing_of_a_job_is_left_behind(make, trial) -> None:
    launcher, folder = make(), trial(do="spawn")
    outcome(launcher, launcher.start(folder))
    assert not alive(int((folder / "grandchild").read_text()))


def test_a_finished_trial_is_not_run_again(make, trial) -> None:
    launcher, folder = make(), trial()
    outcome(launcher, launcher.start(folder))
    assert outcome(launcher, launcher.start(folder)).code == 0
    assert len((folder / "starts").read_text().splitlines()) == 1


def test_a_folder_has_one_job_at_a_time(make, trial) -> None:
    launcher, folder = make(), trial()
    with open(folder / "job.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        handle = launcher.start(folder)
        time.sleep(0.5)
        assert launcher.poll(handle) is None
        assert not (folder / "starts").exists()
    assert outcome(launcher, handle).code == 0


def test_a_job_is_out_of_the_terminals_reach(make, trial) -> None:
    launcher, folder = make(), trial(seconds=0.1)
    handle = launcher.start(folder)
    wait_for((folder / "starts").exists)
    pid = int((folder / "starts").read_text().split()[2])
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
    outcome(launcher, handle)


def test_close_leaves_no_job(make, trial) -> None:
    launcher, folder = make(entry="fake_jobs:deaf"), trial()
    handle = launcher.start(folder)
    wait_for((folder / "deaf").exists)
    launcher.close()
    assert launcher.poll(handle) is not None


@pytest.mark.parametrize("entry", ["fake_jobs:train", "fake_jobs:deaf"])
def test_jobs_end_with_their_driver(make, trial, tmp_path: Path, entry: str, monkeypatch) -> None:
    folder = trial(seconds=0.2)
    monkeypatch.setattr("orchestrator.launch.local.ORPHAN_GRACE", 1.0)

    def drive() -> int:
        launcher = local(entry=entry)
        wait_for(launcher.ready)
        launcher.start(folder)
        time.sleep(60)
        return 0

    driver = harness.forked(drive)
    lock = folder / "job.lock"
    wait_for(
        lambda: lock.exists() and lock.read_text() and ((folder / "starts").exists() or (folder / "deaf").exists())
    )
    job = int(lock.read_text())
    assert alive(job)
    os.kill(driver, signal.SIGKILL)
    harness.ended(driver)
    wait_for(lambda: not alive(job), seconds=30)
    assert not (folder / "result.json").exists()


def test_local_slots_are_cores_by_threads_per_job() -> None:
    cores = len(os.sched_getaffinity(0))
    assert local().slots == cores
    config = harness.configure(Path("/nonexistent"))
    assert harness.launcher(config).slots == 1
    assert harness.launcher(config).threads == cores


def test_slots_on_gpus_are_gpus_by_jobs_per_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.launch.local.gpu_count", lambda: 2)
    config = harness.configure(Path("/nonexistent"), "launcher.jobs_per_gpu=3").launcher
    launcher = LocalLauncher(config, "cuda", single=False)
    assert launcher.slots == 6
    assert sorted(slot.gpus for slot in launcher._free) == [(0,), (0,), (0,), (1,), (1,), (1,)]
    assert {slot.gpus for slot in LocalLauncher(config, "cuda:1", single=False)._free} == {(1,)}
    assert LocalLauncher(config, "cuda", single=True).slots == 1


def test_a_job_sees_its_own_gpus_of_those_that_the_driver_may_use() -> None:
    assert _names((1,), None) == "1"
    assert _names((1, 0), "5, 7") == "7,5"
    assert _names((0,), "GPU-8932f937,GPU-4d2a1b00") == "GPU-8932f937"


def test_a_job_of_several_processes_takes_as_many_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.devices.gpu_count", lambda: 5)
    monkeypatch.setattr("orchestrator.launch.local.gpu_count", lambda: 5)
    config = LauncherConfig(jobs_per_gpu=1, threads_per_job=None, nproc_per_node=2)
    assert [slot.gpus for slot in LocalLauncher(config, "cuda", single=False)._free] == [(0, 1), (2, 3)]


def test_what_goes_wrong_in_preparing_is_told() -> None:
    config = harness.configure(Path("/nonexistent"))
    launcher = LocalLauncher(config.launcher, "cpu", True, preload=harness.PRELOAD, warm="fake_jobs:no_such_function")
    with pytest.raises(RuntimeError, match="no attribute 'no_such_function'"):
        wait_for(launcher.ready)
