import pytest

from orchestrator.record.redact import redact, redact_tree


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("http://ann:pw@host:5000/x", "http://***@host:5000/x"),
        ("postgresql+psycopg2://ann:p@w@db/ml", "postgresql+psycopg2://***@db/ml"),
        ("postgresql://ann:p/w#?@db/ml", "postgresql://***@db/ml"),
        ("https://token@host", "https://***@host"),
        ("failed: 'mysql://a:b@h/d' and http://c:d@e", "failed: 'mysql://***@h/d' and http://***@e"),
        ("postgresql://db/ml?user=ann&password=pw&sslmode=on", "postgresql://db/ml?user=ann&password=***&sslmode=on"),
        ("http://host:5000", "http://host:5000"),
        ("sqlite:////home/ann@home/mlflow.db", "sqlite:////home/ann@home/mlflow.db"),
        ("mail ann@host, see http://host/a", "mail ann@host, see http://host/a"),
        ("", ""),
    ],
)
def test_credentials_in_uris(text, clean):
    assert redact(text) == clean
    assert redact(clean) == clean


def test_secrets_of_the_environment(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "p&ss word")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "abc")  # too short to tell from text
    assert redact("with p&ss word and p%26ss%20word, abc") == "with *** and ***, abc"


def test_nested_values():
    tree = {"a": ["http://u:p@h", {"b": "http://u:p@h"}], "c": 1, "http://u:p@h": None}
    assert redact_tree(tree) == {"a": ["http://***@h", {"b": "http://***@h"}], "c": 1, "http://***@h": None}
    assert tree["c"] == 1
