"""A config as plain data, and back."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import harness
import pytest

from orchestrator.config import Config, from_plain, to_plain
from orchestrator.errors import UserError

WRONG = (3, 0.5, "abc", True, None, [1, 2], {"a": 1})
OPEN = ("sweep.params", "sweep.sampler", "sweep.pruner", "sweep.enqueue")
"""What is in there is for others to judge; and so is what is in the parameters of a task's terms."""
NULLABLE = ("sweep", "sweep.objective", "algorithm.rnd", "half_size", "automaton")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return harness.configure(tmp_path_factory.mktemp("out"), *harness.SWEEP, "algorithm/rnd=default")


def test_there_and_back(config: Config) -> None:
    assert from_plain(to_plain(config)) == config


def entries(plain: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(plain, dict):
        for name, value in plain.items():
            yield (*path, name), value
            yield from entries(value, (*path, name))


def replaced(plain: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = node = deepcopy(plain)
    for name in path[:-1]:
        node = node[name]
    node[path[-1]] = value
    return changed


def may_be(right: Any, wrong: Any) -> bool:
    """Whether it is of the same kind; a text may look like a number, a number be whole."""
    if isinstance(right, str):
        return isinstance(wrong, str | int | float)
    if isinstance(right, bool):
        return isinstance(wrong, bool)
    if isinstance(right, int | float):
        return type(wrong) in (int, type(right))
    return isinstance(right, list) and isinstance(wrong, list)


def test_a_value_of_the_wrong_type_is_told_with_its_key(config: Config) -> None:
    plain = to_plain(config)
    judged = [
        (path, right)
        for path, right in entries(plain)
        if not ".".join(path).startswith(OPEN) and "params" not in path and right is not None
    ]
    assert len(judged) > 150
    for path, right in judged:
        for wrong in WRONG:
            key = ".".join(path)
            if (
                (key, wrong) == ("require", {"a": 1})
                or may_be(right, wrong)
                or (wrong is None and key.endswith(NULLABLE))
            ):
                continue
            with pytest.raises(UserError) as told:
                from_plain(replaced(plain, path, wrong))
            assert str(told.value).startswith(key), (key, wrong)
            assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("seed", "abc", "seed=abc: expected a whole number"),
        ("seed", 2.5, "seed=2.5: expected a whole number"),
        ("algorithm.gamma", None, "algorithm.gamma=null: expected a number"),
        ("doctor", "perhaps", "doctor=perhaps: expected true or false"),
        ("doctor", 3, "doctor=3: expected true or false"),
        ("experiment_name", {"a": None}, "experiment_name={a: null}: expected a text"),
        ("policy.hidden_dims", 64, "policy.hidden_dims=64: expected a list of whole numbers"),
        ("policy.hidden_dims", [64, "wide"], r"policy.hidden_dims[1]=wide: expected a whole number"),
        ("launcher.threads_per_job", True, "launcher.threads_per_job=true: expected null or a whole number"),
        ("confirm", [1, 2], "confirm=[1, 2]: expected a mapping with top_k, seeds"),
        ("confirm", {"top_k": 1}, "confirm.seeds: a value is needed"),
        ("confirm", {"top_q": 1}, "confirm.top_q: no such key; did you mean 'top_k'?"),
        ("evaluation.frozen.open.size", 3, "evaluation.frozen.open.size=3: expected a list of numbers"),
        ("sweep.enqueue", [3], "sweep.enqueue[0]=3: expected a mapping"),
        ("task", None, "task=null: expected a mapping with name"),
        ("task.name", "nev", "task.name=nev: expected a task: nav, reach; did you mean 'nav'?"),
    ],
)
def test_what_is_expected_is_told(config: Config, path: str, value: Any, told: str) -> None:
    with pytest.raises(UserError) as error:
        from_plain(replaced(to_plain(config), tuple(path.split(".")), value))
    assert str(error.value).startswith(told)


def test_numbers_are_read_as_yaml_writes_them(config: Config) -> None:
    plain = replaced(to_plain(config), ("algorithm", "learning_rate"), "1e-3")  # YAML 1.1 takes that for a text
    plain = replaced(plain, ("evaluation", "frozen", "open", "gap"), 1)
    changed = from_plain(plain)
    assert (changed.algorithm.learning_rate, changed.evaluation.frozen["open"].gap) == (0.001, 1.0)
    assert isinstance(changed.evaluation.frozen["open"].gap, float)


def test_nothing_is_interpolated(config: Config) -> None:
    with pytest.raises(UserError, match=r"device=\$\{oc\.env:HOME\}: expected a plain value"):
        from_plain(replaced(to_plain(config), ("device",), "${oc.env:HOME}"))


def test_what_is_no_mapping_is_refused(tmp_path: Path) -> None:
    for text in ([], "just text", None):
        with pytest.raises(UserError, match="expected a mapping"):
            from_plain(text)  # type: ignore[arg-type]
