import pytest

from orchestrator.record.redact import holds_credentials, redact, redact_tree


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


SECRET = "hunter2"
URIS = [
    f"http://ann:{SECRET}@host:5000",
    f"http://ann:it's{SECRET}@host",
    f'http://ann:"{SECRET}"@host',
    f"http://:{SECRET}/x@host",
    f"http://ann:a {SECRET}@host",
    f"http://ann:a/{SECRET}@host/path",
    f"http://ann:12/{SECRET}@host",
    f"http://ann:a@{SECRET}@host",
    f"https://{SECRET}@host",
    f"postgresql://ann:{SECRET}?x#y@host/db",
    f"postgresql://host/db?sslpassword={SECRET}&sslmode=on",
    f"http://host?api-key={SECRET}",
    f"http://host?client_secret={SECRET}'x",
    f"//ann:{SECRET}@host",
    f"http:/ann:{SECRET}@host",
    f"http//ann:{SECRET}@host",
]


@pytest.mark.parametrize("uri", URIS)
def test_however_a_uri_is_written_its_secret_is_masked(uri):
    texts = (
        uri,
        f"error: tracking.uri={uri}: no",
        f"can't reach '{uri}' (see http://docs), ann@home",
        f'{{"u": "{uri}"}}',
    )
    for text in texts:
        assert SECRET not in redact(text)
    assert "host" in redact(uri)
    assert SECRET not in str(redact_tree({"tracking": {"uri": uri}}))
    assert holds_credentials(uri)


def test_a_value_that_is_a_uri_is_masked_up_to_its_host():
    assert redact_tree(f"http://us'er 1:{SECRET} x@host") == "http://***@host"
    assert redact_tree("http://host:5000") == "http://host:5000"


@pytest.mark.parametrize(
    "text", ["http://host:5000 knows no ann@home", "http://host:5000", "sqlite:////a/b@c.db", "# //x"]
)
def test_what_holds_no_secret_stays(text):
    assert redact(text) == text
    assert redact_tree("sqlite:////a/b@c.db") == "sqlite:////a/b@c.db"
    assert not holds_credentials("sqlite:////a/b@c.db")


def test_secrets_of_the_environment(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "p&ss word")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "abc")  # too short to tell from text
    assert redact("with p&ss word and p%26ss%20word, abc") == "with *** and ***, abc"


def test_nested_values():
    tree = {"a": ["http://u:p@h", {"b": "http://u:p@h"}], "c": 1, "http://u:p@h": None}
    assert redact_tree(tree) == {"a": ["http://***@h", {"b": "http://***@h"}], "c": 1, "http://***@h": None}
    assert tree["c"] == 1
