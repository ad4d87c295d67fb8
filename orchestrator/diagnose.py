"""``python -m orchestrator.diagnose <source>``: what a training's curves show, in words.

``<source>`` is a trial's folder, a ``metrics.jsonl``, TensorBoard's event files (one, or the folder that they lie in)
or the id of an MLflow run. Exit codes: 0 done, whatever was found; 2 the user's mistake.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.config import PROJECT
from orchestrator.errors import UserError
from orchestrator.job.spec import from_yaml
from orchestrator.record.redact import redact
from orchestrator.record.store import resolve_uri
from orchestrator.report.curves import find
from orchestrator.report.diagnosis import Diagnosis, diagnose

_STYLE = {"warning": "yellow", "information": "cyan"}


class _Parser(argparse.ArgumentParser):
    """Tells a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; usage: python -m orchestrator.diagnose <source> [--uri URI] [--json]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = _Parser(prog="python -m orchestrator.diagnose", description="What a training's curves show, in words.")
    parser.add_argument(
        "source", help="a trial's folder, a metrics.jsonl, event files (one, or a folder) or the id of an MLflow run"
    )
    parser.add_argument("--uri", help="of MLflow; the project's own store if not given")
    parser.add_argument("--json", action="store_true", help="for programs")
    try:
        given = parser.parse_args(arguments)
        uri = resolve_uri(given.uri if given.uri is not None else _own_store(), PROJECT)
        diagnosis = diagnose(find(given.source, uri))
    except UserError as error:
        print(f"error: {redact(str(error))}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps({"source": given.source, **dataclasses.asdict(diagnosis)}, indent=1))
    else:
        _show(diagnosis, Console(highlight=False))
    return 0


def _own_store() -> str:
    return str(from_yaml((PROJECT / "conf" / "tracking" / "mlflow.yaml").read_text())["uri"])


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
    sys.exit(main())
