"""Imported first by the fork server: takes it, and so all jobs, out of the terminal's reach (Ctrl-C, hang-up)."""

import contextlib
import os

with contextlib.suppress(PermissionError):  # already leads a session
    os.setsid()
