"""``python -m orchestrator.report study=<name or folder>``: write the report of a study, also of one under way.

``pictures=<folder>`` keeps its pictures as files of their own. What can't be read is said in the report, and here. Exit
codes: 0 done, 1 failed, 2 a mistake.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator import command
from orchestrator.command import Arguments
from orchestrator.config import PROJECT, from_plain
from orchestrator.errors import UserError, nearest
from orchestrator.files import Damaged
from orchestrator.search.base import STUDY

SWEEPS = PROJECT / "sweeps"
"""Where a name alone is looked for."""


def report(arguments: Sequence[str]) -> int:
    """Do what the command line says; returns the exit code."""
    given = Arguments(arguments, ("study", "pictures"))
    folder = _find(given.need("study", "name or folder"))
    from orchestrator.report.sweep import write  # now that there is something to do: what follows takes a second
    from orchestrator.search.space import Space
    from orchestrator.search.sweep import Sweep, read_begun

    try:
        config = from_plain(read_begun(folder)["config"])
    except Damaged:
        raise
    except UserError as error:
        raise Damaged(folder / STUDY, str(error)) from error
    if config.sweep is None:
        raise Damaged(folder / STUDY, "config.sweep: a value is needed")
    pictures = given.get("pictures")
    # Without the space: what was searched is told by the trials, and a stranger's space could name code.
    sweep = Sweep(config, Space(()), folder)
    written = write(folder, config, sweep.look(), sweep.careful, Path(pictures) if pictures is not None else None)
    for line in sweep.careful.lines:
        command.say(line, "not in the report")
    print(written)
    return 0


def _find(study: str) -> Path:
    for folder in (Path(study), SWEEPS / study):
        if (folder / STUDY).exists():
            return folder.resolve()
    known = [path.parent.name for path in SWEEPS.glob(f"*/{STUDY}")]
    raise UserError(f"study={study}: no such study in {SWEEPS}{nearest(study, known)}")


if __name__ == "__main__":
    sys.exit(command.run(report, __doc__))
