"""``python -m orchestrator.rerun run=<MLflow run id, or a trial's folder>``: train a recorded run again.

Says whether it comes out equal.

Of a run in MLflow everything is taken from there: config, seed, curves, and which code made them. A folder has all but
the latter itself; it is recorded where the first one was, or at ``tracking.uri=``. But it is trained on this machine,
in as many processes as at first, in a new folder that is named. On a CPU the same code gives the same curves bit for
bit; other code, or a GPU, may end within the interval of the first result, or not.

Exit codes: 0 equal, or within the interval; 1 not, or the training failed; 2 a mistake; 130 / 143 interrupted.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator import command
from orchestrator.command import Arguments
from orchestrator.config import PROJECT, Config, LauncherConfig, validate
from orchestrator.errors import UserError
from orchestrator.job.spec import METRICS, from_yaml, read
from orchestrator.provenance import provenance
from orchestrator.record import wal
from orchestrator.record.reading import Curves, open_run
from orchestrator.record.redact import MASK
from orchestrator.record.store import resolve_uri
from orchestrator.search.base import trial_folder
from orchestrator.search.objective import SUCCESS
from orchestrator.sources import training_folder

KEYS = ("run", "tracking.uri", "output_dir")
CODE = ("git.commit", "git.dirty", "lock.hash", "version.")


@dataclass(frozen=True)
class Original:
    """A recorded run."""

    name: str
    config: Config
    curves: Curves
    tags: Mapping[str, str] | None
    """None where they are not known."""


def load(run_id: str, uri: str) -> Original:
    """A run as MLflow has it. Raises UserError where there is none, or none that could be trained again."""
    run = open_run(run_id, uri)
    # One training, whatever the config says of a search: that could name code of a stranger's.
    return Original(run.name, replace(run.config(), sweep=None), run.curves(), run.tags)


def differences(first: Curves, second: Curves) -> list[tuple[str, int]]:
    """(metric, step) of the first difference of each curve; times, and what a record lacks, are none.

    MLflow holds no value that is not finite, and a run that was stopped early has less.
    """
    found = []
    for name in sorted(first.keys() & second.keys()):
        if name.startswith("Perf/"):
            continue
        steps = sorted(first[name].keys() & second[name].keys())
        step = next((s for s in steps if first[name][s] != second[name][s]), None)
        if step is not None:
            found.append((name, step))
    return found


def verdict(first: Curves, second: Curves) -> tuple[bool, str]:
    """Whether two trainings came to the same, and in words."""
    common = (name for name in first.keys() & second.keys() if not name.startswith("Perf/"))
    shared = [name for name in common if first[name].keys() & second[name].keys()]
    if not shared:
        return False, "nothing to compare: the first run has no curves"
    unequal = differences(first, second)
    if not unequal:
        points = sum(len(first[name].keys() & second[name].keys()) for name in shared)
        return True, f"equal bit for bit: {points} points of {len(shared)} curves"
    name, step = min(unequal, key=lambda difference: difference[1])
    where = f"not equal from iteration {step} on ({name}: {first[name][step]:.6g}, now {second[name][step]:.6g})"
    last = max(first.get(SUCCESS, {0: math.nan}))
    low, high = (first.get(f"{SUCCESS}_{bound}", {}).get(last) for bound in ("low", "high"))
    now = second.get(SUCCESS, {}).get(last)
    if low is None or high is None or now is None:
        return False, f"{where}; the first run has no final evaluation to compare with"
    inside = low <= now <= high
    told = f"{SUCCESS} {first[SUCCESS][last]:.4f} [{low:.4f}, {high:.4f}], now {now:.4f}"
    return inside, f"{where}; {'within' if inside else 'outside'} the interval: {told}"


def code_difference(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is other code than it was: ``name: then -> now``."""
    names = sorted(name for name in {*then, *now} if name.startswith(CODE))
    told = [f"{n}: {then.get(n, 'unknown')} -> {now.get(n, 'unknown')}" for n in names if then.get(n) != now.get(n)]
    if then.get("git.dirty") == "true":
        told.append("the first run's code had changes that were not committed")
    return told


def read_curves(path: Path) -> Curves:
    """The curves of a ``metrics.jsonl``."""
    curves: dict[str, dict[int, float]] = {}
    for record in wal.read(path):
        for name, value in record.metrics.items():
            curves.setdefault(name, {})[record.step] = value
    return curves


def from_folder(folder: Path) -> Original:
    """A run as its folder has it; no store is asked. Raises UserError where it can't be trained again."""
    spec = read(folder)
    return Original(folder.resolve().name, replace(spec.config, sweep=None), read_curves(folder / METRICS), None)


def store_of(original: Original) -> str | None:
    """Where the first one was recorded; None for nowhere. Raises UserError where that is not known any more."""
    uri = original.config.tracking.uri
    if uri is not None and MASK in uri:
        raise UserError(f"tracking.uri={uri}: its credentials were not kept; expected tracking.uri=<where to record>")
    return None if uri is None else resolve_uri(uri, PROJECT)


def rerun(arguments: Sequence[str], **launcher_options: Any) -> int:
    """Do what the command line says; returns the exit code."""
    given = Arguments(arguments, KEYS)
    source = given.need("run", "MLflow run id or trial's folder")
    folder = training_folder(source)
    uri: str | None
    if folder is None:
        first, uri = source, given.tracking_uri()
        original = load(source, uri)
    else:
        first = read(folder).mlflow_run_id or str(folder.resolve())
        original = from_folder(folder)
        uri = store_of(original) if given.get("tracking.uri") is None else given.tracking_uri()
    config = original.config
    # Where it runs is ours to say: the recorded launcher names a class, and cores, of whoever ran it first.
    launcher = LauncherConfig(**from_yaml((PROJECT / "conf" / "launcher" / "local.yaml").read_text()))
    config = replace(
        config,
        launcher=replace(launcher, nproc_per_node=config.launcher.nproc_per_node),
        tracking=replace(config.tracking, uri=uri),
        output_dir=given.get("output_dir") or config.output_dir,
        require={},
        dry_run=False,
    )
    validate(config)
    if original.tags is not None:
        for line in code_difference(original.tags, provenance()):
            print(f"other code: {line}")
    from orchestrator.drive import drive  # takes a second to import

    study = (original.tags or {}).get("study", config.experiment_name)
    code, search = drive(config, launcher_options, {"rerun_of": first}, again=f"{original.name} of {study}")
    if code:
        return code
    number = search.unfinished()[0].number
    same, told = verdict(original.curves, read_curves(trial_folder(search.folder, number) / METRICS))
    print(f"{original.name} ({source}) again: {told}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(command.run(rerun, __doc__))
