"""What recording costs. Prints, each measured in one run:

1. how much longer a job's iteration gets by everything that it writes (asked: at most 1 %);
2. the share of one core that the recorder takes while two jobs write, and that the whole process of driver and recorder
   takes while two jobs train (asked: at most 5 %);
3. how long the first metric takes to reach MLflow, with a new store and with one that exists.

    .venv/bin/python tests/benchmarks/tracking.py [--seconds 60] [--only iteration|training|recorder|driver|first]
"""

import argparse
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

PERIOD = 0.25  # seconds of an iteration: 256 rooms x 32 steps on one core
SCALARS = 45  # as many as the table of metrics has in an iteration without evaluation


def metrics(step: int) -> dict[str, float]:
    """Values as a training has them: no two alike, most with all their digits."""
    values = {f"Episode_Reward/term_{i}": (step * 0.7310585 + i * 0.1192029) % 1.0 for i in range(SCALARS - 1)}
    return values | {"Train/env_steps": step * 8192.0}


class HalfWritten:
    """Stands in for a job's curves, writes half of the iterations, and keeps the cost of all.

    Off, on, on, off: a drift of the machine's speed cancels out.
    """

    def __init__(self, folder: Path, pause: float) -> None:
        """`pause`: seconds after each iteration, not counted as time, for the event file's own thread to get done."""
        from orchestrator.job.curves import Curves

        self._curves = Curves(folder)
        self._pause = pause
        self._turn = 0
        self.wall: dict[bool, list[float]] = {True: [], False: []}
        self.cpu: dict[bool, list[float]] = {True: [], False: []}
        self.inside: list[float] = []
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def write(self, step: int, values: dict[str, float]) -> None:
        """End of an iteration."""
        written = self._turn % 4 in (1, 2)
        call = time.perf_counter()
        if written:
            self._curves.write(step, values)
            self.inside.append(time.perf_counter() - call)
        self.wall[written].append(time.perf_counter() - self._wall)
        time.sleep(self._pause)
        self.cpu[written].append(time.process_time() - self._cpu)
        self._turn += 1
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def report(self, what: str, warm_up: int) -> None:
        """Print, leaving out the first pairs."""
        self._curves.close()
        print(f"{what}: with everything written longer by (asked: at most 1 %)")
        for name, values in (("time", self.wall), ("CPU ", self.cpu)):
            pairs = list(zip(values[True], values[False], strict=False))[warm_up:]
            off = statistics.median(without for _, without in pairs)
            ratios = [100 * (on / without - 1) for on, without in pairs]
            error = 1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5  # of a median
            print(
                f"  {name} {statistics.median(ratios):+.2f} ± {error:.2f} % of {off * 1e3:.0f} ms, {len(pairs)} pairs"
            )
        inside = statistics.median(self.inside)
        print(f"  inside the call {inside * 1e3:.2f} ms, {100 * inside / off:.2f} %")


def iteration(seconds: float) -> None:
    """Compare iterations of a fixed amount of work."""
    import torch

    torch.set_num_threads(1)
    a = torch.randn(256, 256)

    def work(times: int) -> None:
        for _ in range(times):
            torch.tanh(a @ a)

    work(200)
    start = time.perf_counter()
    work(500)
    times = round(500 * PERIOD / (time.perf_counter() - start))
    with tempfile.TemporaryDirectory() as folder:
        half = HalfWritten(Path(folder), pause=0.02)
        for step in range(4 * round(seconds / PERIOD / 4)):
            work(times)
            half.write(step, metrics(step))
        half.report(f"fixed work, {SCALARS} metrics", warm_up=2)


def training(seconds: float) -> None:
    """Compare iterations of a real training, without evaluations and checkpoints."""
    from orchestrator.config import compose
    from orchestrator.job.runner import Runner

    never = 1_000_000
    overrides = [f"{key}={never}" for key in ("evaluation.every", "algorithm.checkpoint_every", "algorithm.iterations")]
    config = compose("device=cpu", *overrides)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(config, seed=1, folder=Path(folder), threads=1)
        half = HalfWritten(Path(folder), pause=0.005)
        end = time.monotonic() + seconds
        runner.train(half, lambda: time.monotonic() > end)  # type: ignore[arg-type]
        half.report("real training, default config on one core", warm_up=4)


def write_like_a_job(folder: Path, seconds: float) -> None:
    """Write metrics at the pace of a training and do nothing else."""
    from orchestrator.job.curves import Curves

    curves = Curves(folder)
    start = time.monotonic()
    step = 0
    while time.monotonic() - start < seconds:
        step += 1
        curves.write(step, metrics(step))
        time.sleep(max(0.0, start + step * PERIOD - time.monotonic()))
    curves.close()


def start_writers(folder: Path, count: int, seconds: float) -> list[tuple[Path, "subprocess.Popen[bytes]"]]:
    """Start processes that each write as a job does."""
    writers = []
    for number in range(count):
        own = folder / f"trial_{number:04d}"
        own.mkdir()
        command = [sys.executable, __file__, "--write", str(own), "--seconds", str(seconds)]
        writers.append((own, subprocess.Popen(command)))
    return writers


def recorder(seconds: float, ship_every: float | None) -> None:
    """Print the recorder's share of one core while two jobs write."""
    import optuna  # noqa: F401 - what a driver has in memory, too, is walked by the garbage collector
    import torch  # noqa: F401

    from orchestrator.record.mlflow import SHIP_EVERY, Recorder

    every = ship_every or SHIP_EVERY
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = time.process_time()
        made = Recorder(f"sqlite:///{folder / 'mlflow.db'}", "bench", ship_every=every)
        made.start_study("study", "study")
        writers = start_writers(folder, 2, seconds + 30)
        for number, (own, _) in enumerate(writers):
            made.start_trial(number, own, f"uid-{number}", config={"seed": number})
        while made.run_id(1) is None:
            time.sleep(0.05)
        time.sleep(6.0)
        opening = time.process_time() - before
        start_cpu, start = time.process_time(), time.monotonic()
        points = sum(run.points for run in made._trials.values())
        time.sleep(seconds)
        cpu, wall = time.process_time() - start_cpu, time.monotonic() - start
        points = sum(run.points for run in made._trials.values()) - points
        for _, process in writers:
            process.terminate()
            process.wait()
        for number in range(len(writers)):
            made.end_trial(number, "finished")
        start = time.monotonic()
        report = made.close("finished", 30)
        print(f"recorder, two jobs of {1 / PERIOD:g} iterations/s, {SCALARS} metrics each, a batch every {every:g} s:")
        print(f"  {100 * cpu / wall:.2f} % of one core over {wall:.0f} s (asked, with the driver: 5 %)")
        print(f"  {points / wall:.0f} points/s, {points / max(cpu, 1e-9):.0f} points per second of CPU")
        print(f"  once, importing MLflow and making a new store: {opening:.1f} s of CPU")
        print(
            f"  closing: {time.monotonic() - start:.2f} s; {report.points} points, unfinished: {len(report.unfinished)}"
        )


def driver(seconds: float) -> None:
    """Print the share of one core of a sweep's own process, driver and recorder, while its two jobs train."""
    tick = os.sysconf("SC_CLK_TCK")

    def cpu(pid: int, task: int) -> float:
        fields = Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / tick

    def all_tasks(pid: int) -> dict[int, float]:
        return {int(task): cpu(pid, int(task)) for task in os.listdir(f"/proc/{pid}/task")}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "orchestrator", "+sweep=reward_weights", "device=cpu", "sweep.name=bench"]
        command += [f"output_dir={folder}", f"tracking.uri=sqlite:///{folder}/mlflow.db", "sweep.n_trials=2"]
        command += ["algorithm.iterations=100000"]
        with open(folder / "log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[2])
        logs = [folder / "bench" / f"trial_{number:04d}" / "metrics.jsonl" for number in range(2)]
        deadline = time.monotonic() + 120
        try:
            while not all(path.exists() and path.stat().st_size for path in logs):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"two jobs did not start:\n{(folder / 'log').read_text()}")
                time.sleep(0.1)
            time.sleep(10)
            lines = sum(path.read_bytes().count(b"\n") for path in logs)
            before, start = all_tasks(process.pid), time.monotonic()
            time.sleep(seconds)
            after, wall = all_tasks(process.pid), time.monotonic() - start
            lines = sum(path.read_bytes().count(b"\n") for path in logs) - lines
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        total = sum(after.values()) - sum(before.values())
        main_task = after[process.pid] - before[process.pid]
        print(f"driver and recorder while two jobs train, {lines / wall:.1f} iterations/s together:")
        print(f"  {100 * total / wall:.2f} % of one core over {wall:.0f} s (asked: at most 5 %)")
        print(f"  of it {100 * main_task / wall:.2f} % the driver's own thread")


def first() -> None:
    """Print how long the first metric takes from the recorder's start, in processes of their own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("new store", "store that exists"):
            command = [sys.executable, __file__, "--first", str(folder / "mlflow.db"), str(folder / kind)]
            seconds = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(f"first metric in MLflow after {seconds:.1f} s ({kind}; MLflow is not imported before)")


def measure_first(database: Path, folder: Path) -> None:
    """Print the seconds from the recorder's start until the database holds a metric of this run."""
    from orchestrator.record.mlflow import Recorder

    def shipped() -> int:
        if not database.exists():
            return 0
        connection = sqlite3.connect(database)
        try:
            return int(connection.execute("select count(*) from metrics").fetchone()[0])
        finally:
            connection.close()

    folder.mkdir()
    before = shipped()
    start = time.monotonic()
    made = Recorder(f"sqlite:///{database}", "bench")
    made.start_trial(0, folder, folder.name)
    writer = subprocess.Popen([sys.executable, __file__, "--write", str(folder), "--seconds", "60"])
    while shipped() == before:
        time.sleep(0.02)
    print(time.monotonic() - start)
    writer.terminate()
    writer.wait()
    made.end_trial(0, "finished")
    made.close("finished", 10)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="length of each measurement")
    parser.add_argument("--only", choices=["iteration", "training", "recorder", "driver", "first"])
    parser.add_argument("--ship-every", type=float, help="seconds between two batches, to compare")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write_like_a_job(given.write, given.seconds)
    elif given.first:
        measure_first(*given.first)
    else:
        if given.only in (None, "iteration"):
            iteration(given.seconds)
        if given.only in (None, "training"):
            training(given.seconds)
        if given.only in (None, "recorder"):
            recorder(given.seconds, given.ship_every)
        if given.only in (None, "driver"):
            driver(given.seconds)
        if given.only in (None, "first"):
            first()


if __name__ == "__main__":
    main()
