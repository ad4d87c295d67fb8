"""The run's doctor: what a training's curves show, in words.

Every fault of ``faults.py`` is looked for. What is wrong is a warning; what is only good to know (still rising at the
end, which phase takes the time) is information, and so is what a training that reaches its goals may show as well. A
fault that can't be judged, since something was not logged or the training was too short, is named as such: silence
means that it was looked for.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator import files
from orchestrator.job.spec import write_aside
from orchestrator.report.curves import Missing, RunCurves, from_folder
from orchestrator.report.faults import CHECKS, Verdict

DIAGNOSIS = "diagnosis.md"
"""In a trial's folder."""

HEAD = "# What the curves of"
"""How it begins."""

MEANING = {"warning": "to look into", "information": "good to know"}
"""Levels as people say them."""

CODES = tuple(code for codes, _, _ in CHECKS for code in codes)
"""All that is looked for."""


@dataclass(frozen=True)
class Diagnosis:
    """All that the curves show."""

    iterations: int
    verdicts: tuple[Verdict, ...]
    """Warnings first."""
    not_judged: Mapping[str, str]
    """Code -> why it could not be."""


def diagnose(run: RunCurves) -> Diagnosis:
    """Look for every fault."""
    iterations = run.last - run.first + 1 if run.curves else 0
    verdicts: list[Verdict] = []
    not_judged: dict[str, str] = {}
    for codes, shortest, function in CHECKS:
        try:
            if iterations < shortest:
                raise Missing(f"{iterations} iterations, at least {shortest} are needed")
            verdicts += function(run)
        except Missing as missing:
            not_judged |= dict.fromkeys(codes, str(missing))
    order = {"warning": 0, "information": 1}
    return Diagnosis(iterations, tuple(sorted(verdicts, key=lambda v: order[v.level])), not_judged)


def as_markdown(diagnosis: Diagnosis) -> str:
    """The text of ``diagnosis.md``."""
    lines = [f"{HEAD} {diagnosis.iterations} iterations show", ""]
    lines += [f"- **{verdict.code}** {verdict}" for verdict in diagnosis.verdicts] or ["Nothing to object to."]
    if diagnosis.not_judged:
        lines += ["", "Not judged:", ""]
        lines += [f"- {code}: {why}" for code, why in diagnosis.not_judged.items()]
    return "\n".join(lines) + "\n"


def attach(folder: Path) -> None:
    """Write ``diagnosis.md`` into a trial's folder. Raises OSError."""
    write_aside(folder / DIAGNOSIS, as_markdown(diagnose(from_folder(folder))))


def read(file: Path) -> dict[str, str]:
    """Code -> level and words of each verdict in a ``diagnosis.md``. Raises FileNotFoundError, or Damaged."""

    def verdicts(text: str) -> dict[str, str]:
        if not text.startswith(HEAD) or not text.endswith("\n"):
            raise ValueError("it is not whole")
        return dict(re.findall(r"^- \*\*(\w+)\*\* (.*)$", text, re.MULTILINE))

    found: dict[str, str] = files.read(file, verdicts, "a diagnosis")
    return found


@dataclass(frozen=True)
class Told:
    """A code that several trainings were told, at its worst."""

    code: str
    level: str
    trainings: int
    """How many were told it at this level."""
    example: str


def worst(trainings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Code -> the worst of what some trainings were told under it."""
    found: dict[str, str] = {}
    for verdicts in trainings:
        for code, words in verdicts.items():
            if code not in found or words.startswith("warning") > found[code].startswith("warning"):
                found[code] = words
    return found


def count(trainings: Sequence[Mapping[str, str]]) -> list[Told]:
    """What trainings were told, warnings first. A code that is a warning to some and information to others is counted
    as a warning, among those whom it warns."""
    found = []
    for code, example in worst(trainings).items():
        level = example.partition(",")[0]
        told = sum(verdicts.get(code, "").startswith(level) for verdicts in trainings)
        found.append(Told(code, level, told, example))
    return sorted(found, key=lambda t: (t.level != "warning", -t.trainings, t.code))


def summarise(trainings: Sequence[Mapping[str, str]]) -> list[str]:
    """At most two lines on what some trainings were told: who has a warning, and what is good to know."""
    lines = []
    for level in ("warning", "information"):
        found = [told for told in count(trainings) if told.level == level]
        if found:
            each = (f"{told.code} in {told.trainings}" if len(trainings) > 1 else told.code for told in found)
            of = f" of {len(trainings)} trainings" if len(trainings) > 1 else ""
            lines.append(f"curves, {MEANING[level]}: {', '.join(each)}{of} ({DIAGNOSIS} in each folder)")
    return lines
