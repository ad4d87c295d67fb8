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

# What user and password stand after: a scheme with its slashes, or without one of their signs, or slashes alone. In the
# URI of a file an @ is a part of the path.
_BEGIN = r"""(?P<begin>\b(?!sqlite:|file:)[a-zA-Z][\w+.\-]*(?::/+|//+)|(?<![\w:/])//+)"""

# In a text: user:password, which may hold anything but another URI (an @, quotes and spaces, too); or what has no
# spaces and no quotes. Spaces after what reads as host:port are the text's own.
_USER_INFO = re.compile(
    rf"""{_BEGIN}(?!{re.escape(MASK)}@)"""
    r"""(?:(?![\w.\-]+:\d{1,5}(?:[/?#\s'",;)\]]|$))[^/?#\s'"@:]*:(?:(?!://).)*"""
    r"""|[^/?#\s'"@:]*:[^\s'"]*"""
    r"""|[^/?#\s'"]*)@"""
)
# A value that is a URI as a whole: all that stands before its last @.
_WHOLE = re.compile(rf"""^\s*{_BEGIN}.*@""", re.DOTALL)

# The value of a query's parameter whose name speaks of a secret; what closes it in the text around it is kept.
_QUERY_SECRET = re.compile(
    r"""(?P<key>[?&;][\w.\-]*(?:passw|pwd|passphrase|secret|token|api[_\-]?key|access[_\-]?key|auth|credential|signature"""
    r"""|odbc_connect)[\w.\-]*=)[^&#\s]+?(?=['"),;\]]*(?:[&#\s]|$))""",
    re.I,
)


def holds_credentials(uri: str) -> bool:
    """Whether something in what is meant as a URI is, or may be, a secret; true also where it is written wrongly."""
    return not uri.lstrip().startswith(("sqlite:", "file:")) and ("@" in uri or _QUERY_SECRET.search(uri) is not None)


def redact(text: str) -> str:
    """Return `text` with the credentials in URIs, and the secrets that the environment holds, masked."""
    text = _USER_INFO.sub(rf"\g<begin>{MASK}@", text)
    text = _QUERY_SECRET.sub(rf"\g<key>{MASK}", text)
    for variable in _SECRET_VARIABLES:
        secret = os.environ.get(variable, "")
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK).replace(quote(secret, safe=""), MASK)
    return text


def redact_tree(value: Any) -> Any:
    """Return a copy of nested dicts and lists with every string redacted, keys too; anything else is passed through."""
    if isinstance(value, str):
        return redact(_WHOLE.sub(rf"\g<begin>{MASK}@", value))
    if isinstance(value, Mapping):
        return {redact_tree(key): redact_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_tree(item) for item in value]
    return value
