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
LONG = {"make bench"}

pytestmark = pytest.mark.xdist_group("readme")  # they share an output folder


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


@pytest.mark.parametrize("command", [c for c in dict.fromkeys(COMMANDS) if c not in {SELF, *SERVERS, *LONG}])
def test_command(command, own):
    if command == "make smoke":
        small = f"{SMALL} require={{Eval/success_rate:0.0}}"
    elif "=ppo" in command:  # it searches mini-batches and rollout lengths that small settings don't allow
        small = "num_envs=64 algorithm.iterations=2 evaluation.every=1 evaluation.num_rooms=10 sweep.n_trials=2"
    elif "sweep" in command and "n_trials" not in command and "best" not in command:
        small = f"{SMALL} sweep.n_trials=2"
    else:
        small = SMALL
    if "orchestrator.evaluate" in command:
        runs = own.split()[0].removeprefix("output_dir=")
        command, small, own = command.replace("run=sweeps", f"run={runs}"), "rooms=5", ""
    if "n_trials=30" in command:
        command = command.replace("n_trials=30", "n_trials=3")
    if "tracking.uri=" in command:
        command, own = command.split(" tracking.uri=")[0], f"{own.split()[0]} tracking.uri=http://127.0.0.1:9"
    if "--config-dir" in command:
        study = own.split()[0].removeprefix("output_dir=")
        command = command.replace("--config-dir sweeps", f"--config-dir {study}")
    if command.startswith("make"):
        done = run(f'{command} ARGS="{small} {own}"')
    else:
        done = run(f"{in_this_interpreter(command)} {small} {own}")
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
