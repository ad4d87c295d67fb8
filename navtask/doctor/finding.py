"""What a check found."""

from dataclasses import dataclass

PASS, FAIL, UNKNOWN, CRASHED = "pass", "fail", "could not tell", "could not examine"
NOT_ALIKE = "needs copies that are alike"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: str
    verdict: str
    """``pass``, ``fail``, ``could not tell``; or ``could not examine``, where the check itself crashed."""
    figure: str
    """What was seen, with its number."""
    look_at: str
    """Where such a fault is usually found."""


Outcome = tuple[str, str]
"""Verdict and figure."""
