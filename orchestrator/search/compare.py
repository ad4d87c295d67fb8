"""Whether one config is better than another: both trained with the same seeds and evaluated on the same rooms.

A success rate differs between two trainings because of the configs, because of the seeds and because of the rooms.
Seeds and rooms are crossed (every seed meets every room), so both are resampled, each as a whole: the pigeonhole
bootstrap (Owen 2007, Annals of Applied Statistics 1(2), 386-411, doi:10.1214/07-AOAS122). It errs on the careful side:
what seed and room do together counts up to three times.

With three or five seeds a bootstrap's quantiles are far too narrow: of three seeds they can't cover more than 75 %. So
the interval is the bootstrap's standard error, with the seeds' part set right by n / (n - 1), times Student's t
(Hesterberg 2015, The American Statistician 69(4), 371-386, doi:10.1080/00031305.2015.1089789), at the degrees of
freedom that seeds and rooms have together (Satterthwaite 1946, Biometrics Bulletin 2(6), 110-114).
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # scipy.stats has it too, and takes half a second to import

RESAMPLES = 2000
"""The standard error is known to 2 % then."""

Rooms = NDArray[np.floating]
"""A metric in every room (seeds, evaluations, rooms), nan where a room has none."""


@dataclass(frozen=True)
class Difference:
    """Candidate minus baseline."""

    value: float
    low: float
    high: float
    """Ends of the interval."""


def mean(rooms: Rooms) -> NDArray[np.float64]:
    """Each seed's value (seeds,): the mean over the rooms that have one, then over evaluations. nan: one has none."""
    return _weighted(rooms, np.ones((rooms.shape[2], 1)))[:, 0]


def in_common(candidate: Rooms, baseline: Rooms) -> tuple[Rooms, Rooms]:
    """Both, with nan in every room where either has nan.

    What only a success has, such as the time to the goal, would else be compared between different rooms: who reaches
    the near goals alone would look quick.
    """
    either = np.isnan(candidate) | np.isnan(baseline)
    return np.where(either, np.nan, candidate), np.where(either, np.nan, baseline)


def interval(rooms: Rooms) -> Difference | None:
    """The mean of one training (evaluations, rooms) with its 95 % interval over rooms; None of fewer than two.

    A room's evaluations belong together, so they are averaged first: mean +- 1.96 s / sqrt(m) over the m rooms' means,
    the normal interval (Wasserman 2004, All of Statistics, theorem 6.16).
    """
    known = ~np.isnan(rooms)
    counts = known.sum(0)
    each = np.where(known, rooms, 0.0).sum(0)[counts > 0] / counts[counts > 0]
    value = float(mean(rooms[None])[0])
    if len(each) < 2 or math.isnan(value):
        return None
    half = 1.959964 * float(each.std(ddof=1)) / math.sqrt(len(each))
    return Difference(value, value - half, value + half)


def paired_difference(candidate: Rooms, baseline: Rooms, confidence: float) -> Difference:
    """The mean difference over seeds with its interval. Both (seeds, evaluations, rooms), seed and room paired.

    One room only (a metric that isn't known by room): the interval is over seeds alone.
    """
    seeds, _, rooms = candidate.shape
    assert candidate.shape == baseline.shape
    assert seeds >= 2
    difference = mean(candidate) - mean(baseline)
    value = float(difference.mean())

    w, v = _resamples(seeds, 0), _resamples(rooms, 1)
    resampled = _weighted(candidate, v) - _weighted(baseline, v)  # (seeds, B)
    # Var over rooms; over seeds, which is known exactly; and over both: seeds + rooms + what they do together
    var_rooms = float(np.nanvar(resampled.mean(0)))
    var_seeds = float(difference.var() / seeds)
    var_both = max(float(np.nanvar((w * resampled).sum(0) / seeds)), var_rooms + var_seeds)
    by_seeds, by_rooms = seeds / (seeds - 1), rooms / max(1, rooms - 1)
    # Var = (Var_both - Var_rooms) n / (n - 1) + Var_rooms m / (m - 1)
    variance = (var_both - var_rooms) * by_seeds + var_rooms * by_rooms
    if variance <= 0.0:
        return Difference(value, value, value)
    # nu = Var^2 / (Var_seeds^2 / (n - 1) + Var_rooms^2 / (m - 1))
    spread = (var_seeds * by_seeds) ** 2 / (seeds - 1) + (var_rooms * by_rooms) ** 2 / max(1, rooms - 1)
    freedom = max(seeds - 1.0, variance**2 / spread) if spread > 0.0 else math.inf
    half = float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(variance)
    return Difference(value, value - half, value + half)


@functools.cache
def _resamples(size: int, stream: int) -> NDArray[np.float64]:
    """How often each of ``size`` things is drawn (size, B). The same in every process: a verdict can be had again."""
    drawn = np.random.default_rng([size, stream]).multinomial(size, [1 / size] * size, size=RESAMPLES)
    return np.ascontiguousarray(drawn.T, dtype=np.float64)


def _weighted(rooms: Rooms, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """``mean`` with each room counted as often as ``weights`` (rooms, B) say: (seeds, B)."""
    known = ~np.isnan(rooms)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = (np.where(known, rooms, 0.0) @ weights) / (known @ weights)  # (seeds, evaluations, B)
    return np.asarray(each.mean(1), dtype=np.float64)
