"""The run's doctor: what a training's curves show, in words.

Every fault of ``faults.py`` is looked for. What is wrong is a warning; what is only good to know (still rising at the
end, which phase takes the time) is information, and so is what a training that reaches its goals may show as well. A
fault that can't be judged, since something was not logged or the training was too short, is named as such: silence
means that it was looked for.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.job.spec import write_aside
from orchestrator.report.curves import Missing, RunCurves, from_folder
from orchestrator.report.faults import CHECKS, Verdict

DIAGNOSIS = "diagnosis.md"
"""In a trial's folder."""

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
    lines = [f"# What the curves of {diagnosis.iterations} iterations show", ""]
    lines += [f"- **{verdict.code}** {verdict}" for verdict in diagnosis.verdicts] or ["Nothing to object to."]
    if diagnosis.not_judged:
        lines += ["", "Not judged:", ""]
        lines += [f"- {code}: {why}" for code, why in diagnosis.not_judged.items()]
    return "\n".join(lines) + "\n"


def attach(folder: Path) -> None:
    """Write ``diagnosis.md`` into a trial's folder. Raises OSError."""
    write_aside(folder / DIAGNOSIS, as_markdown(diagnose(from_folder(folder))))


def attached(folder: Path) -> dict[str, str]:
    """Code -> level and words of each verdict in a folder's ``diagnosis.md``; empty where there is none."""
    try:
        text = (folder / DIAGNOSIS).read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^- \*\*(\w+)\*\* (.*)$", text, re.MULTILINE))


def summarise(trainings: Sequence[Mapping[str, str]]) -> list[str]:
    """At most two lines on what ``attached`` gave for some trainings: who has a warning, and what is good to know."""
    lines = []
    for level, head in (("warning", "curves, to look into"), ("information", "curves, good to know")):
        found = Counter(code for verdicts in trainings for code, words in verdicts.items() if words.startswith(level))
        if found:
            each = (f"{code} in {count}" if len(trainings) > 1 else code for code, count in found.most_common())
            of = f" of {len(trainings)} trainings" if len(trainings) > 1 else ""
            lines.append(f"{head}: {', '.join(each)}{of} ({DIAGNOSIS} in each folder)")
    return lines
