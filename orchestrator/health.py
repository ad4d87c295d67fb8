"""The environment is examined before a sweep begins: what is sought on a sick one is not worth finding.

Examined in a process of its own, which alone loads the engine. A good outcome is kept as long as neither the task's
settings nor its code changes.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from navtask import cache
from orchestrator.config import PROJECT, Config, task_of

TAG = "doctor"
ENGINES = ("torch", "mujoco", "mujoco-warp", "warp-lang")


class SickEnvironment(RuntimeError):
    """The doctor has named a fault. ``str(error)`` is the one line that is shown."""


def examine(config: Config) -> dict[str, str]:
    """What runs are tagged with. Raises SickEnvironment, naming the fault, before a sweep on a sick environment."""
    if config.sweep is None:
        return {}
    if not config.doctor:
        return {TAG: "off"}
    asked = _question(config)
    kept = cache.folder() / f"doctor-{_fingerprint(config, asked)}.json"
    if not kept.exists():
        findings = _ask(asked)
        faults = [f"{f['check']}: {f['figure']} (look at: {f['look_at']})" for f in findings if f["verdict"] == "fail"]
        if faults:
            raise SickEnvironment(
                f"the environment is sick: {'; '.join(faults)}. See python -m navtask.doctor; "
                "doctor=off trains on it all the same"
            )
        print(f"environment examined: {len(findings)} checks, nothing failed")
        _keep(kept, findings)
    return {TAG: "passed"}


def _question(config: Config) -> dict[str, Any]:
    """What the environment depends on."""
    return {
        "task": asdict(config.task),
        "privileged": any("privileged" in groups for groups in config.policy.obs_groups.values()),
        "device": config.device,
        "backend": config.physics.backend,
    }


def _fingerprint(config: Config, asked: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    digest.update(repr([version(name) for name in ENGINES]).encode())
    for path in _sources(config):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def _sources(config: Config) -> Iterator[Path]:
    """The code of navtask, and of the package that the task is from."""
    definition = sys.modules[type(task_of(config)).__module__].__file__
    folders = {Path(cache.__file__).parent, Path(str(definition)).parent}
    for folder in sorted(folders):
        yield from sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".xml") and p.is_file())


def _ask(asked: Mapping[str, Any]) -> list[dict[str, str]]:
    done = subprocess.run(
        (sys.executable, "-m", "orchestrator.health"),
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        told = done.stderr.strip().splitlines() or ["no word"]
        raise RuntimeError(f"the environment could not be examined: {told[-1]}; doctor=off leaves that out")
    findings: list[dict[str, str]] = json.loads(lines[-1])
    return findings


def _keep(path: Path, findings: list[dict[str, str]]) -> None:
    """Written aside and renamed; where nothing can be kept, it is asked again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as aside:
            json.dump(findings, aside, indent=1)
        os.replace(aside.name, path)
    except OSError:
        return


def answer(asked: Mapping[str, Any]) -> list[dict[str, str]]:
    """The doctor's findings on the environment that ``_question`` describes."""
    from navtask import tasks
    from navtask.doctor import examine as examine_patient
    from navtask.doctor.loading import built_in, typed

    config = typed(tasks.get(asked["task"]["name"]).config, asked["task"])
    settings = {name: asked[name] for name in ("privileged", "device", "backend")}
    return [asdict(finding) for finding in examine_patient(built_in(config, **settings))]


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
