"""Ctrl-C and SIGTERM: noted, so that nothing is torn out of a write; and what time is left then."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOP_GRACE, KILL_GRACE = 6.0, 1.0
"""Seconds after Ctrl-C: jobs may checkpoint so long, and this is for the kernel to clear them away after that."""

BUDGET, LEAST = 9.5, 0.5
"""Seconds from Ctrl-C to the end (10 are promised): what jobs leave of it is the recorder's, but it has some always."""


class Interruption:
    """While this is entered, SIGINT and SIGTERM are noted down, and wake whoever waits on ``woken``."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._since = 0.0
        self._raises = False
        self.woken, self._write = socket.socketpair()
        self.woken.setblocking(False)
        self._write.setblocking(False)

    def __enter__(self) -> "Interruption":
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        self._wakeup = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if not self._signals:
            self._since = time.monotonic()
        self._signals.append(number)
        if self._raises:
            raise KeyboardInterrupt

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.woken.close()
        self._write.close()

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return bool(self._signals)

    @property
    def urgent(self) -> bool:
        """Whether nothing may be waited for any longer: asked twice, or jobs have had their time."""
        return len(self._signals) > 1 or (self.asked and time.monotonic() > self._since + STOP_GRACE + KILL_GRACE)

    @property
    def time_left(self) -> float:
        """Seconds that the recorder may still take."""
        if len(self._signals) > 1:
            return LEAST
        return max(LEAST, BUDGET - (time.monotonic() - self._since if self.asked else 0.0))

    @property
    def exit_code(self) -> int:
        """0, or 128 + the first signal."""
        return 128 + self._signals[0] if self._signals else 0

    @contextmanager
    def cuts_short(self) -> Iterator[None]:
        """What is done in here is left at a signal: nothing of it must not be torn."""
        self._raises = True
        try:
            with suppress(KeyboardInterrupt):
                yield
        finally:
            self._raises = False
