"""The environment is examined before a sweep begins: what is sought on a sick one is not worth finding.

Examined by navtask's own command, in a process which alone loads the engine; so whoever gives that command again sees
what was seen here. A good outcome is kept as long as neither the task's settings nor its code changes.
"""

import hashlib
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from navtask import cache
from orchestrator import files
from orchestrator.config import PROJECT, Config, task_of
from orchestrator.files import Damaged
from orchestrator.job.spec import as_yaml, write_aside

TAG, CHECKS = "doctor", "doctor.checks"
"""Tags: ``passed`` or ``off``; and what was seen."""
FILE = "doctor.json"
"""These tags, in a study's folder."""
RAISES = "the environment raises"
"""How a check's figure begins where an exception came out of the environment."""
ENGINES = ("torch", "mujoco", "mujoco-warp", "warp-lang")

Finding = Mapping[str, str]


class SickEnvironment(RuntimeError):
    """The doctor has named a fault. ``str(error)`` is the one line that is shown."""


def examine(config: Config) -> dict[str, str]:
    """What runs are tagged with; a line on it is printed.

    Raises SickEnvironment, naming the fault, before a sweep on a sick environment, and RuntimeError before one on an
    environment that could not be examined.
    """
    if config.sweep is None:
        return {}
    if not config.doctor:
        return _told({TAG: "off"})
    asked = _question(config)
    fingerprint = _fingerprint(config, asked)
    kept = cache.folder() / f"doctor-{fingerprint}.json"
    findings = _kept(kept)
    if findings is not None:
        since = f" (kept from {datetime.fromtimestamp(kept.stat().st_mtime):%Y-%m-%d %H:%M})"
    else:
        since = ""
        command = _command(asked, f"doctor-{fingerprint}.yaml")
        findings = _ask(command)
        _refuse_sick(findings, command)
        _keep(kept, json.dumps(findings, indent=1))
    return _told({TAG: "passed", CHECKS: _counted(findings) + since})


def _told(tags: dict[str, str]) -> dict[str, str]:
    print(_words(tags))
    return tags


def note(folder: Path, tags: Mapping[str, str]) -> None:
    """Leave in a study's folder what ``examine`` came to."""
    examined = {name: tags[name] for name in (TAG, CHECKS) if name in tags}
    if examined:
        write_aside(folder / FILE, json.dumps(examined, indent=1) + "\n")


def noted(file: Path) -> str:
    """What ``note`` left, for people. Raises FileNotFoundError, or Damaged."""
    tags = files.read_mapping(file, json.loads, "JSON")
    if TAG not in tags or (tags[TAG] != "off" and CHECKS not in tags):
        raise Damaged(file, f"expected the keys {TAG} and {CHECKS}")
    return _words(tags)


def _words(tags: Mapping[str, str]) -> str:
    return "environment not examined: doctor=off" if tags[TAG] == "off" else f"environment examined: {tags[CHECKS]}"


def _counted(findings: Sequence[Finding]) -> str:
    untold = [finding["check"] for finding in findings if finding["verdict"] == "could not tell"]
    told = f", {len(untold)} could not tell ({', '.join(untold)})" if untold else ""
    return f"{len(findings)} checks, nothing failed{told}"


def _refuse_sick(findings: Sequence[Finding], command: Sequence[str]) -> None:
    again = f"See {shlex.join((sys.executable, *command))}; doctor=off"
    failed = [finding for finding in findings if finding["verdict"] == "fail"]
    raises = [f["figure"] for f in failed if f["figure"].startswith(RAISES)]
    if raises:  # that, and not what a check was about, is what there is to mend
        raise SickEnvironment(f"{raises[0]}. {again} begins all the same")
    faults = [f"{f['check']}: {f['figure']} (look at: {f['look_at']})" for f in failed]
    if faults:
        raise SickEnvironment(f"the environment is sick: {'; '.join(faults)}. {again} trains on it all the same")
    crashed = [f"{f['check']}: {f['figure']}" for f in findings if f["verdict"] == "could not examine"]
    if crashed:
        raise RuntimeError(f"could not examine the environment: {'; '.join(crashed)}. {again} leaves that out")


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


def _command(asked: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """What examines the environment that ``_question`` describes, its settings lying in a file of that name."""
    settings = as_yaml(asked["task"])
    file = cache.folder() / name
    if not _keep(file, settings):
        file = Path(tempfile.mkdtemp(prefix="navtask-")) / name
        file.write_text(settings)
    command = ["-m", "navtask.doctor", f"task={file}"]
    for key, usual in (("device", "cpu"), ("backend", "auto"), ("privileged", False)):
        if asked[key] != usual:
            command.append(f"{key}={str(asked[key]).lower()}")
    return tuple(command)


def _ask(command: Sequence[str]) -> list[Finding]:
    done = subprocess.run((sys.executable, *command, "--json"), capture_output=True, text=True, cwd=PROJECT)
    try:
        findings: list[Finding] = json.loads(done.stdout)
    except ValueError as error:
        told = done.stderr.strip().splitlines() or ["no word"]
        raise RuntimeError(
            f"could not examine the environment: {told[-1].removeprefix('error: ')}; doctor=off leaves that out"
        ) from error
    return findings


def _kept(path: Path) -> list[Finding] | None:
    """What was found earlier; None where nothing was, or what lies there is not what ``examine`` keeps."""
    try:
        findings = json.loads(path.read_text())
        good = all(finding["verdict"] in ("pass", "could not tell") and finding["check"] for finding in findings)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return findings if good and isinstance(findings, list) and findings else None


def _keep(path: Path, text: str) -> bool:
    """Whether it could be written; where nothing can be kept, it is asked again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, text)
    except OSError:
        return False
    return True
