"""A straight line through a curve, and whether it rises or falls beyond the curve's noise."""

import math
from dataclasses import dataclass

from orchestrator.report.curves import Curve

SIGNIFICANT = 3.0
"""A trend counts when it is larger than this many of its standard errors: with a dozen verdicts a run, two standard
errors would raise a false alarm in every other one."""


@dataclass(frozen=True)
class Trend:
    """A straight line through a curve."""

    change: float
    """From its first point to its last."""
    error: float
    """The change's standard error."""

    @property
    def rises(self) -> bool:
        """Whether it does, beyond the noise."""
        return self.change > SIGNIFICANT * self.error

    @property
    def falls(self) -> bool:
        """Likewise."""
        return -self.change > SIGNIFICANT * self.error


def trend(curve: Curve) -> Trend:
    """Least squares: the slope's standard error is sqrt(RSS / (n - 2) / sum (x - mean x)^2)."""
    if len(curve) < 3:
        return Trend(0.0, math.inf)
    x = curve.steps - curve.steps.mean()
    y = curve.values - curve.values.mean()
    if not x @ x > 0:  # iterations so large that they can't be told apart
        return Trend(0.0, math.inf)
    slope = (x @ y) / (x @ x)
    residuals = y - slope * x
    error = math.sqrt(residuals @ residuals / (len(x) - 2) / (x @ x))
    span = x[-1] - x[0]
    return Trend(float(slope * span), float(error * span))
