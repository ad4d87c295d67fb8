"""The interval of a paired difference: what it covers, and who is named a winner by it."""

import numpy as np
import pytest
from scipy import stats

from orchestrator.search.compare import Rooms, interval, mean, paired_difference

EVALUATIONS, ROOMS = 3, 100


def trainings(
    random: np.random.Generator, quality: float, hardness: np.ndarray, seeds: int, seed_spread: float
) -> Rooms:
    """Success (seeds, evaluations, rooms) of a config of this quality, in logits, in rooms of this hardness."""
    logits = (
        quality
        - hardness
        + random.normal(0, seed_spread, (seeds, 1))  # one training learns better than another
        + random.normal(0, 0.5, len(hardness))  # what suits this config
        + random.normal(0, 1.0, (seeds, len(hardness)))
    )
    return (random.random((EVALUATIONS, *logits.shape)) < 1 / (1 + np.exp(-logits))).transpose(1, 0, 2).astype(float)


def test_the_mean_leaves_out_rooms_that_have_no_value() -> None:
    time_to_goal = np.array([[[3.0, np.nan, 5.0], [4.0, 6.0, 8.0]], [[np.nan, 2.0, np.nan], [2.0, 2.0, 2.0]]])
    assert mean(time_to_goal) == pytest.approx([(4 + 6) / 2, 2.0])
    assert np.isnan(mean(np.full((1, 1, 3), np.nan))).all()


def test_an_interval_over_rooms_averages_each_rooms_evaluations_first() -> None:
    found = interval(np.array([[1.0, 0.0, 3.0, np.nan], [2.0, 1.0, 3.0, np.nan]]))
    # By hand: the rooms' means are 1.5, 0.5 and 3, of which s^2 = (1/6)^2 (1^2 + 7^2 + 8^2) / 2 = 19 / 12.
    assert found is not None
    assert (found.value, found.high - found.value) == (pytest.approx(5 / 3), pytest.approx(1.959964 * (19 / 36) ** 0.5))
    assert found.value - found.low == pytest.approx(found.high - found.value)
    assert interval(np.array([[1.0, np.nan]])) is None


def test_a_difference_is_the_mean_over_seeds_and_rooms() -> None:
    random = np.random.default_rng(0)
    a, b = random.random((4, EVALUATIONS, ROOMS)), random.random((4, EVALUATIONS, ROOMS))
    found = paired_difference(a, b, 0.95)
    assert found.value == pytest.approx(a.mean() - b.mean())
    assert found.low < found.value < found.high
    opposite = paired_difference(b, a, 0.95)
    assert (opposite.low, opposite.high) == pytest.approx((-found.high, -found.low))
    assert paired_difference(a, b, 0.99).low < found.low


def test_the_standard_error_is_that_of_seeds_and_rooms_together() -> None:
    """A table of independent numbers has a known one: the bootstrap's is the sum of three parts (Owen 2007)."""
    random = np.random.default_rng(1)
    seed, room = random.normal(0, 1.0, (5, 1, 1)), random.normal(0, 8.0, (1, 1, ROOMS))
    a = np.broadcast_to(seed + room, (5, EVALUATIONS, ROOMS))
    found = paired_difference(a, np.zeros_like(a), 0.95)
    by_seeds, by_rooms = seed.var(ddof=1) / 5, room.var(ddof=1) / ROOMS
    freedom = (by_seeds + by_rooms) ** 2 / (by_seeds**2 / 4 + by_rooms**2 / (ROOMS - 1))
    expected = stats.t.ppf(0.975, freedom) * np.sqrt(by_seeds + by_rooms)
    assert found.high - found.value == pytest.approx(expected, rel=0.06)  # what 2,000 resamples leave open


def test_without_rooms_it_is_students_paired_test() -> None:
    a, b = np.array([0.9, 0.95, 0.91, 0.97]), np.array([0.88, 0.9, 0.9, 0.91])
    found = paired_difference(a.reshape(-1, 1, 1), b.reshape(-1, 1, 1), 0.95)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.value == pytest.approx((expected.low + expected.high) / 2)
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=0.06)


def test_equal_trainings_differ_by_nothing() -> None:
    a = np.ones((3, EVALUATIONS, ROOMS))
    found = paired_difference(a, a, 0.95)
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("seed_spread", [0.0, 0.3])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_interval_covers_what_it_promises(seeds: int, seed_spread: float) -> None:
    """Also with few seeds: a percentile bootstrap over three covers 75 % at most."""
    random = np.random.default_rng(2)
    covered, cases = 0, 100
    for _ in range(cases):
        hardness = random.normal(0, 1.2, ROOMS)
        a, b = (trainings(random, 2.6, hardness, seeds, seed_spread) for _ in range(2))
        found = paired_difference(a, b, 0.95)
        covered += found.low <= 0.0 <= found.high
    assert covered >= 91  # of 100; 95 are promised, and 90 would come of it in 2 % of such tests
