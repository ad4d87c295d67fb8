"""Where what is worth computing only once is kept."""

import os
from pathlib import Path


def folder() -> Path:
    """``$NAVTASK_CACHE``, or navtask's place in the user's cache folder."""
    own = os.environ.get("NAVTASK_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "navtask"
