"""The README is kept: every command in it is known here, and run, with small settings where the real ones take long."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    for line in block.splitlines()
]
SMALL = "num_envs=16 algorithm.iterations=2 evaluation.every=1 evaluation.num_rooms=10"
SELF = "make test"  # the command that runs this test
SERVERS = {"make ui": "PORT", "make tensorboard": "TENSORBOARD_PORT"}
LONG = {"make bench", "make study"}
ON_A_GPU = {".venv/bin/python tests/gpu/bench.py"}


def in_groups(commands: list[str]) -> list:
    """Commands that need what others leave run in one worker, in their order: those of searches, and the others."""
    groups = ("single", "search")
    about_searches = [bool(re.search(r"sweep=|make sweep|study=|\+best", command)) for command in commands]
    marks = [pytest.mark.xdist_group(f"readme-{groups[search]}") for search in about_searches]
    return [pytest.param(c, marks=mark, id=c) for c, mark in zip(commands, marks, strict=True)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("readme")
    return f"output_dir={folder}/sweeps tracking.uri=sqlite:///{folder}/mlflow.db"


def run(command: str, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, cwd=PROJECT, capture_output=True, text=True, timeout=240, check=False, **kwargs
    )


def in_this_interpreter(command: str) -> str:
    return command.replace(".venv/bin/python", sys.executable)


def test_pictures_are_there_and_nothing_is_left_to_fill_in():
    text = (PROJECT / "README.md").read_text()
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert pictures
    assert all((PROJECT / picture).is_file() for picture in pictures)
    assert not re.findall(r"\b(BENCH_TABLE|TRACKING|DRIVER|TODO)\b", text)


def test_the_two_commands_come_first():
    assert COMMANDS[:2] == ["make sweep", "make test"]
    assert SELF in (PROJECT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    "command", in_groups([c for c in dict.fromkeys(COMMANDS) if c not in {SELF, *SERVERS, *LONG, *ON_A_GPU}])
)
def test_command(command, own):
    sweeps, store = (part.partition("=")[2] for part in own.split())
    command = command.replace("=sweeps/", f"={sweeps}/").replace("--config-dir sweeps", f"--config-dir {sweeps}")
    command = command.replace("n_trials=30", "n_trials=3")
    small = f"{SMALL} {own}"
    if "navtask.doctor" in command or "orchestrator.report" in command:
        small = ""
    elif "orchestrator.evaluate" in command:
        small = "rooms=5"
    elif "orchestrator.diagnose" in command:
        small = f"tracking.uri={store}"
    elif "orchestrator.rerun" in command:
        small = own
    elif command == "make smoke":
        small += " require={Eval/success_rate:0.0}"
    elif "=ppo" in command:  # it searches mini-batches and rollout lengths that smaller settings don't allow
        small = small.replace("num_envs=16", "num_envs=64")
    elif "tracking.uri=" in command:
        small = small.replace(store, "http://127.0.0.1:9")
        command = command.split(" tracking.uri=")[0]
    if "sweep=" in command or command == "make sweep":
        small += " confirm.top_k=" + ("1 confirm.seeds=3" if command == "make sweep" else "0")
        small += "" if "n_trials" in command else " sweep.n_trials=2"
    if command.startswith("make"):
        done = run(f'{command} ARGS="{small}"')
    else:
        done = run(f"{in_this_interpreter(command)} {small}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("command", "option"), SERVERS.items())
def test_server(command, option, unused_port):
    server = subprocess.Popen(
        f"{command} {option}={unused_port}",
        shell=True,
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/", timeout=5) as page:
                    assert page.status == 200
                    break
            except OSError:
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.5)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=30)


def test_benchmarks_run():
    plan = run("make -n bench")
    assert "-m tests.benchmarks" in plan.stdout
    done = run(f"{sys.executable} tests/benchmarks/throughput.py --rooms 16 --threads 1 --rounds 1")
    assert done.returncode == 0, done.stderr
    assert "full/bare" in done.stdout


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
