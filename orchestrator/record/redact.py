"""Keeps credentials out of logs, params, tags, config dumps and error texts.

User and password of a tracking server come from the environment (`MLFLOW_TRACKING_USERNAME`, `MLFLOW_TRACKING_PASSWORD`
or `MLFLOW_TRACKING_TOKEN`). Those of a database stand inside its URI, which config may put together from the
environment. Whoever writes text that may quote either lets it pass through here.
"""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

MASK = "***"

# Variables whose value is a secret, whatever stands there.
_SECRET_VARIABLES = (
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "PGPASSWORD",
    "MYSQL_PWD",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
)
_SHORTEST = 4  # a shorter secret occurs in any text by chance, and masking it would garble the text without hiding it

# user[:password]@ after a scheme; the last @ ends it. A password with an unquoted / ? # in it is hidden as well.
_USER_INFO = re.compile(r"""(?P<scheme>\b[a-zA-Z][\w+.\-]*://)(?:[^/?#\s'"@:]+:[^\s'"]*|[^/?#\s'"]*)@""")
_QUERY_SECRET = re.compile(r"""(?P<key>[?&](?:password|passwd|pwd|token|access_token|api_key)=)[^&#\s'"]+""", re.I)


def redact(text: str) -> str:
    """Return `text` with the credentials in URIs, and the secrets that the environment holds, masked."""
    text = _USER_INFO.sub(rf"\g<scheme>{MASK}@", text)
    text = _QUERY_SECRET.sub(rf"\g<key>{MASK}", text)
    for variable in _SECRET_VARIABLES:
        secret = os.environ.get(variable, "")
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK).replace(quote(secret, safe=""), MASK)
    return text


def redact_tree(value: Any) -> Any:
    """Return a copy of nested dicts and lists with every string redacted, keys too; anything else is passed through."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact_tree(key): redact_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_tree(item) for item in value]
    return value
