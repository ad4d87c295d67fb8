"""Signals are noted, wake whoever waits, and tear only what may be torn."""

import os
import select
import signal
import time

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


def test_only_what_may_be_torn_is_cut_short() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as stop:
        begun = time.monotonic()
        with stop.cuts_short():
            signal.raise_signal(signal.SIGINT)
            time.sleep(20)
        assert time.monotonic() - begun < 5
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
