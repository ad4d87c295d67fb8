"""Install what throughput.py --peers compares with, each library into an environment of its own under build/peers.

They can't share ours: mjlab pins an older MuJoCo and an older rsl_rl. PyBullet is compiled where its index has no wheel
for this Python, which takes minutes and a C++ compiler.

    .venv/bin/python tests/benchmarks/peers/install.py [mjlab pybullet sb3]
"""

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENTS = Path(__file__).parents[3] / "build" / "peers"
READY = "ready"  # an empty file, made last

# torch first and as here, and named again: torchvision, which mjlab draws in, would bring the newest one with CUDA.
PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "mjlab": (("torch==2.13.0",), ("torch==2.13.0", "mjlab==1.6.0")),
    "pybullet": (("numpy", "pybullet==3.2.7"),),
    "sb3": (("torch==2.13.0",), ("torch==2.13.0", "stable-baselines3==2.9.2", "mujoco==3.17.0")),
}


def interpreter(name: str) -> Path:
    """The Python of a peer's environment."""
    return ENVIRONMENTS / name / "bin" / "python"


def installed(name: str) -> bool:
    """Whether a peer's environment is complete."""
    return (ENVIRONMENTS / name / READY).exists()


def install(name: str) -> None:
    """Create a peer's environment, or complete it; does nothing where everything is there."""
    if installed(name):
        return
    folder = ENVIRONMENTS / name
    print(f"{name}: installing into {folder}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    for packages in PACKAGES[name]:
        pip = [str(interpreter(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        subprocess.run(pip, check=True, env=os.environ | {"MAKEFLAGS": "-j1"})
    (folder / READY).touch()


if __name__ == "__main__":
    for peer in sys.argv[1:] or PACKAGES:
        install(peer)
