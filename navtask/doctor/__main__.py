"""``python -m navtask.doctor task=nav``: examine an environment.

``task`` is a task by its name, with the numbers of ``conf/``; a YAML file of a task's settings; or
``package.module:Class``. What a training's command line changes of its task is changed here in the same words:
``task/rooms=barn task.rewards.progress.weight=0``. ``privileged=true`` adds the observation group that only simulators
have. Exit codes: 0 nothing failed, 1 something did or could not be examined, 2 the user's mistake.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads would starve the physics

import argparse
import contextlib
import difflib
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from navtask.errors import ConfigError
from navtask.stdout import quiet_when_unread

KEYS = {"task": "nav", "seed": "0", "device": "cpu", "backend": "auto", "privileged": "false"}

Row = Sequence[str]


@quiet_when_unread()
def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m navtask.doctor", description="Examine an environment from outside."
    )
    shown = " ".join(f"{key}={value}" for key, value in KEYS.items())
    told = f"{shown}; a task is a name, a YAML file or module:Class; task/… and task.… change a task's settings"
    parser.add_argument("settings", nargs="*", metavar="key=value", help=told)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    given = parser.parse_args(arguments)
    try:
        settings, overrides = _settings(given.settings)
        from navtask.doctor import CRASHED, FAIL, examine
        from navtask.doctor.loading import find
        from navtask.typed import typed

        sys.path.insert(0, os.getcwd())
        patient = find(
            settings["task"],
            overrides=overrides,
            seed=_seed(settings["seed"]),
            device=settings["device"],
            backend=settings["backend"],
            privileged=typed(bool, settings["privileged"], "privileged"),
        )
        with contextlib.redirect_stdout(sys.stderr):  # an environment may print what it likes
            findings = examine(patient)
    except ConfigError as error:
        words = (str(error.value), error.key, error.key.rpartition(".")[2])
        near = [name for word in words for name in difflib.get_close_matches(word, error.candidates, n=1)]
        print(f"error: {error}{f'; did you mean {near[0]!r}?' if near else ''}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(table([(f.check, f.verdict, f.figure, f.look_at) for f in findings], width))
    return int(any(finding.verdict in (FAIL, CRASHED) for finding in findings))


HEAD = ("check", "verdict", "figure", "what to look at")
GAP = "  "
NARROWEST = 16
"""Of a column that is wrapped."""


def table(rows: Sequence[Row], width: int | None) -> str:
    """Columns as wide as they need; the last two share what ``width`` leaves them, where there is one."""
    rows = [HEAD, *rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    if width is not None and sum(widths) + 3 * len(GAP) > width:
        left = max(width - sum(widths[:2]) - 3 * len(GAP), 2 * NARROWEST)
        # In proportion to what they hold, so that both take about as many lines.
        figure = min(max(left * widths[2] // (widths[2] + widths[3]), NARROWEST), left - NARROWEST)
        widths[2:] = figure, left - figure
    return "\n".join(line for row in rows for line in _lines(row, widths))


def _lines(row: Row, widths: Sequence[int]) -> list[str]:
    cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, cells))
    filled = [[*cell, *[""] * (height - len(cell))] for cell in cells]
    return [
        GAP.join(f"{part:<{width}}" for part, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*filled, strict=True)
    ]


def _settings(given: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """What there is of KEYS, and what is changed of the task."""
    from navtask.doctor.settings import is_override

    settings, overrides = dict(KEYS), {}
    for argument in given:
        key, equals, value = argument.partition("=")
        if equals and is_override(key):
            overrides[key] = value
        elif equals and key in KEYS:
            settings[key] = value
        else:
            raise ConfigError(
                key, value, f"one of {', '.join(f'{name}=…' for name in (*KEYS, 'task/…', 'task.…'))}", KEYS
            )
    return settings, overrides


def _seed(value: str) -> int:
    if not value.isdecimal():
        raise ConfigError("seed", value, "a whole number, at least 0")
    return int(value)


if __name__ == "__main__":
    sys.exit(main())
