"""The grammar of search spaces."""

import math

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from orchestrator.errors import UserError
from orchestrator.search.grammar import parse


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("interval(0.5, 8)", FloatDistribution(0.5, 8)),
        ("interval(1, 8)", FloatDistribution(1, 8)),
        ("interval(-8, -1)", FloatDistribution(-8, -1)),
        ("tag(log, interval(1e-5, 1e-2))", FloatDistribution(1e-5, 1e-2, log=True)),
        ("int(interval(2, 8))", IntDistribution(2, 8)),
        ("tag(int, interval(2, 8))", IntDistribution(2, 8)),
        ("tag(log, int(interval(1, 64)))", IntDistribution(1, 64, log=True)),
        ("range(1, 9, 2)", IntDistribution(1, 9, step=2)),
        ("range(1, 10, 2)", IntDistribution(1, 9, step=2)),
        ("range(0.1, 1, 0.3)", FloatDistribution(0.1, 1.0, step=0.3)),
        ("choice(elu, tanh)", CategoricalDistribution(["elu", "tanh"])),
        ("elu, tanh", CategoricalDistribution(["elu", "tanh"])),
        ("choice(true, false)", CategoricalDistribution([True, False])),
        ("shuffle(range(1, 4))", CategoricalDistribution([1, 2, 3])),
    ],
)
def test_what_users_of_hydras_optuna_sweeper_know(text: str, distribution: object) -> None:
    found = parse("a.b", text)
    assert found.distribution == distribution
    assert found.name == found.path == "a.b"


def test_logit_is_even_in_the_horizon() -> None:
    found = parse("algorithm.gamma", "logit(interval(0.9, 0.999))")
    low, high, middle = found.probes()
    assert (low, high) == (pytest.approx(0.9), pytest.approx(0.999))
    odds = [x / (1 - x) for x in (low, middle, high)]
    assert odds[1] == pytest.approx(math.sqrt(odds[0] * odds[2]))
    assert found.name == "logit(algorithm.gamma)"
    assert found.decode(found.nearest(0.97)) == pytest.approx(0.97)


def test_pow2() -> None:
    found = parse("a", "pow2(4, 64)")
    assert found.distribution == IntDistribution(2, 6)
    assert [found.decode(e) for e in range(2, 7)] == [4, 8, 16, 32, 64]
    assert all(isinstance(found.decode(e), int) for e in range(2, 7))
    assert found.contains(16)
    assert not found.contains(20)


def test_lists_may_be_chosen_among() -> None:
    found = parse("a", "choice([64,64],[128,128])")
    assert found.probes() == [[64, 64], [128, 128]]
    assert found.decode(found.nearest([128, 128])) == [128, 128]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("interval(8, 0.5)", "8 must be below the upper bound 0.5"),
        ("interval(1, 1)", "must be below"),
        ("int(interval(8, 2))", "must be below"),
        ("range(9, 1)", "must be below"),
        ("range(1, 9, -1)", "step"),
        ("interval(0, inf)", "finite"),
        ("interval(nan, 1)", "finite"),
        ("tag(log, interval(0, 1))", "logarithmic"),
        ("tag(lgo, interval(1, 2))", "did you mean 'log'"),
        ("logit(interval(0, 0.9))", "between 0 and 1"),
        ("logit(interval(0.5, 1))", "between 0 and 1"),
        ("pow2(3, 8)", "powers of two"),
        ("pow2(8, 8)", "must be below"),
        ("choice()", "empty choice"),
        ("intervall(1, 2)", "intervall"),
        ("interval(1, 2", "interval(1, 2"),
        ("interval(a, b)", "interval(a, b)"),
        ("interval(1)", "end"),
        ("3", "single value"),
        (3, "expected interval"),
        (None, "expected interval"),
    ],
)
def test_what_cannot_be_read_is_refused(text: object, told: str) -> None:
    with pytest.raises(UserError) as refused:
        parse("a.b", text)
    assert str(refused.value).startswith(f"sweep.params.a.b={text}: ")
    assert told in str(refused.value)


def test_points_outside_are_told_as_the_nearest_inside() -> None:
    def told(text: str, value: object) -> object:
        return parse("a", text).nearest(value)

    assert told("interval(1, 2)", 5.0) == 2.0
    assert told("tag(log, interval(1, 2))", 0.0) == 1.0
    assert told("int(interval(2, 8))", 11) == 8
    assert told("range(1, 9, 2)", 4.2) == 5
    assert told("logit(interval(0.9, 0.99))", 1.0) == pytest.approx(math.log(99))
    assert told("choice(a, b)", "c") == "a"
