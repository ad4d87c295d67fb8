import pytest
from mlflow.utils.validation import _validate_metric_name, _validate_param, _validate_tag

from orchestrator.record import fields

ODD_KEYS = [
    "task.rewards.goal.weight",
    "Episode_Reward/goal",
    "Eval_dense/success_rate",
    "a b",
    "a:b",
    "",
    "/abs",
    "a//b",
    "a/./b",
    "a/../b",
    "../up",
    "..",
    ".",
    "end/",
    "ünï,&%=()[]{}'\"\n\t",
    "x" * 251,
    "http://ann:hunter2@host/key",
]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_mlflow_takes_every_key(key):
    legal = fields.legal_key(key)
    _validate_metric_name(legal)
    _validate_param(legal, "v")
    _validate_tag(legal, "v")
    assert "hunter2" not in legal


@pytest.mark.parametrize("key", ODD_KEYS[:5])
def test_a_legal_key_stays(key):
    assert fields.legal_key(key) == key


def test_long_keys_stay_different():
    keys = {"x" * 260 + end for end in "abc"}
    assert len({fields.legal_key(key) for key in keys}) == 3


def test_keys_that_become_the_same_stay_apart():
    assert fields.params({"a,b": 1, "a;b": 2, "a_b": 3}, {}) == {"a_b": "1", "a_b_2": "2", "a_b_3": "3"}


def test_params_are_the_flat_config_and_what_is_searched():
    config = {"a": {"b": 1.5, "c": [1, "x"], "d": {}}, "e": None, "f": True, "g": "text", "h": {"i": {"j": 3e-4}}}
    assert fields.params(config, {"a.b": 1.5}) == {
        "a.b": "1.5",
        "a.c": '[1, "x"]',
        "a.d": "{}",
        "e": "null",
        "f": "true",
        "g": "text",
        "h.i.j": "0.0003",
        "search.a.b": "1.5",
    }


def test_long_values_are_cut_and_say_so():
    (param,) = fields.params({"a": "ü" * 7000}, {}).values()
    (tag,) = fields.tags({"a": "ü" * 9000}).values()
    assert (len(param), len(tag)) == (6000, 8000)
    assert param.endswith("(cut)")
    assert tag.endswith("(cut)")
    assert fields.params({"a": "x" * 6000}, {}) == {"a": "x" * 6000}


def test_values_are_redacted():
    assert fields.params({"tracking": {"uri": "http://a:b@h", "all": ["http://a:b@h"]}}, {}) == {
        "tracking.uri": "http://***@h",
        "tracking.all": '["http://***@h"]',
    }
    assert fields.tags({"u": "http://a:b@h", "none": None, "n": 3}) == {"u": "http://***@h", "n": "3"}
