"""``python -m orchestrator.report study=<name or folder>``: write the report of a study, also of one under way.

``pictures=<folder>`` keeps its pictures as files of their own. Exit codes: 0 done, 1 failed, 2 a mistake.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from orchestrator import command
from orchestrator.command import Arguments
from orchestrator.config import PROJECT, from_plain
from orchestrator.errors import UserError, nearest
from orchestrator.job.spec import from_yaml
from orchestrator.report.sweep import write
from orchestrator.search.space import Space
from orchestrator.search.sweep import STUDY, Sweep

SWEEPS = PROJECT / "sweeps"
"""Where a name alone is looked for."""


def report(arguments: Sequence[str]) -> int:
    """Do what the command line says; returns the exit code."""
    given = Arguments(arguments, ("study", "pictures"))
    folder = _find(given.need("study", "name or folder"))
    try:
        begun = from_yaml((folder / STUDY).read_text())
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{folder / STUDY}: damaged: {str(error).splitlines()[0]}") from error
    if not isinstance(begun, dict) or not isinstance(begun.get("config"), dict):
        raise UserError(f"{folder / STUDY}: damaged: expected the key config")
    config = from_plain(begun["config"])
    pictures = given.get("pictures")
    into = Path(pictures) if pictures is not None else None
    # Without the space: what was searched is told by the trials, and a stranger's space could name code.
    print(write(folder, config, Sweep(config, Space(()), folder).look(), into))
    return 0


def _find(study: str) -> Path:
    for folder in (Path(study), SWEEPS / study):
        if (folder / STUDY).exists():
            return folder.resolve()
    known = [path.parent.name for path in SWEEPS.glob(f"*/{STUDY}")]
    raise UserError(f"study={study}: no such study in {SWEEPS}{nearest(study, known)}")


if __name__ == "__main__":
    sys.exit(command.run(report, __doc__))
