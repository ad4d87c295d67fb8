"""``python -m navtask.doctor task=nav``: examine an environment.

``task`` is a task by its name, with the numbers of ``conf/``, or ``package.module:Class``. Exit codes: 0 nothing
failed, 1 something did, 2 the user's mistake.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads would starve the physics

import argparse
import difflib
import json
import sys
from dataclasses import asdict

from navtask.errors import ConfigError

KEYS = {"task": "nav", "seed": "0", "device": "cpu"}


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m navtask.doctor", description="Examine an environment from outside."
    )
    shown = " ".join(f"{key}={value}" for key, value in KEYS.items())
    parser.add_argument("settings", nargs="*", metavar="key=value", help=f"{shown}; a task is a name or module:Class")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    given = parser.parse_args(arguments)
    try:
        settings = _settings(given.settings)
        from navtask.doctor import FAIL, examine
        from navtask.doctor.loading import find

        sys.path.insert(0, os.getcwd())
        findings = examine(find(settings["task"], seed=_seed(settings["seed"]), device=settings["device"]))
    except ConfigError as error:
        near = [n for w in (error.value, error.key) for n in difflib.get_close_matches(str(w), error.candidates, n=1)]
        print(f"error: {error}{f'; did you mean {near[0]!r}?' if near else ''}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print(table([(f.check, f.verdict, f.figure, f.look_at) for f in findings]))
    return int(any(finding.verdict == FAIL for finding in findings))


def table(rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as they need."""
    rows = [("check", "verdict", "figure", "what to look at"), *rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _settings(given: list[str]) -> dict[str, str]:
    settings = dict(KEYS)
    for argument in given:
        key, equals, value = argument.partition("=")
        if not equals or key not in KEYS:
            raise ConfigError(key, value, f"one of {', '.join(f'{name}=…' for name in KEYS)}", KEYS)
        settings[key] = value
    return settings


def _seed(value: str) -> int:
    if not value.isdecimal():
        raise ConfigError("seed", value, "a whole number, at least 0")
    return int(value)


if __name__ == "__main__":
    sys.exit(main())
