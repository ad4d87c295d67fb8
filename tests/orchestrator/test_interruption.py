"""Signals are noted, wake whoever waits, and tear only what may be torn."""

import os
import select
import signal
import time
from collections.abc import Iterator

import pytest

from orchestrator.interruption import BUDGET, LEAST, Interruption


def test_a_signal_is_noted_and_wakes_whoever_waits() -> None:
    with Interruption() as stop:
        assert (stop.asked, stop.exit_code, stop.time_left) == (False, 0, BUDGET)
        os.kill(os.getpid(), signal.SIGTERM)
        assert select.select([stop.woken], [], [], 5)[0] == [stop.woken]
        assert (stop.asked, stop.urgent, stop.exit_code) == (True, False, 143)
        assert BUDGET - 1 < stop.time_left < BUDGET
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.urgent, stop.exit_code, stop.time_left) == (True, 143, LEAST)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler of Ctrl-C: a shell that starts the tests in the background has SIGINT ignored in them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_only_what_may_be_torn_is_cut_short() -> None:
    with Interruption() as stop:
        begun = time.monotonic()
        with stop.cuts_short():
            signal.raise_signal(signal.SIGINT)
            time.sleep(20)
        assert time.monotonic() - begun < 5
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
