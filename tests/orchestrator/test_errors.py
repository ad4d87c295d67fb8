"""The ends of error lines."""

from orchestrator.errors import did_you_mean, nearest, shown


def test_nearest() -> None:
    assert nearest("dens", ["open", "dense"]) == "; did you mean 'dense'?"
    assert nearest("xyz", ["open", "dense"]) == "; known: dense, open"
    assert nearest("xyz", []) == ""


def test_did_you_mean() -> None:
    assert did_you_mean("dens", ["open", "dense"]) == "; did you mean 'dense'?"
    assert did_you_mean("xyz", ["open", "dense"]) == ""


def test_values_are_shown_as_they_are_written() -> None:
    assert shown({"a": [1, None, True], "b": "text"}) == "{a: [1, null, true], b: text}"
