"""``python -m orchestrator.diagnose run=<source>``: what a training's curves show, in words.

    run=      a trial's folder, a ``metrics.jsonl``, TensorBoard's event files (one, or the folder that they lie in) or
              the id of an MLflow run
    tracking.uri=   where MLflow's runs are; the project's own store by default
    --json    for programs

Exit codes: 0 done, whatever was found; 2 a mistake.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator import command
from orchestrator.command import Arguments
from orchestrator.report.curves import find
from orchestrator.report.diagnosis import Diagnosis, diagnose

_STYLE = {"warning": "yellow", "information": "cyan"}


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says. Raises UserError."""
    given = Arguments(arguments, ("run", "tracking.uri"), flags=("--json",))
    source = given.need("run", "folder, log, event file or MLflow run id")
    diagnosis = diagnose(find(source, given.tracking_uri()))
    if "--json" in given.flags:
        print(json.dumps({"run": source, **dataclasses.asdict(diagnosis)}, indent=1))
    else:
        _show(diagnosis, Console(highlight=False))
    return 0


def _show(diagnosis: Diagnosis, console: Console) -> None:
    if not console.is_terminal:
        console.width = 120
    if diagnosis.verdicts:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("verdict", "", "iterations", f"what the curves of {diagnosis.iterations} iterations show"):
            table.add_column(column)
        for verdict in diagnosis.verdicts:
            first, last = verdict.iterations
            when = f"{first} to {last}" if last > first else str(first)
            words = Text(f"{verdict.seen}. ").append(f"{verdict.advice}.", style="dim")
            table.add_row(verdict.code, Text(verdict.level, style=_STYLE[verdict.level]), when, words)
        console.print(table)
    else:
        console.print(f"{diagnosis.iterations} iterations: nothing to object to")
    if diagnosis.not_judged:
        reasons: dict[str, list[str]] = {}
        for code, why in diagnosis.not_judged.items():
            reasons.setdefault(why, []).append(code)
        told = "; ".join(f"{', '.join(codes)} ({why})" for why, codes in reasons.items())
        console.print(f"not judged: {told}", style="dim")


if __name__ == "__main__":
    sys.exit(command.run(run, __doc__))
