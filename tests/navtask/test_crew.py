"""Jobs shared among threads: each done once, whoever comes first."""

import gc
import threading
import time
from functools import partial

import pytest

from navtask.crew import Crew


@pytest.mark.parametrize("helpers", [0, 1, 4])
def test_every_job_is_done_once_before_a_run_ends(helpers):
    crew = Crew(helpers)
    for _ in range(200):
        done = []
        crew.run([partial(done.append, k) for k in range(7)])
        assert sorted(done) == list(range(7))


def test_helpers_take_their_share():
    barrier = threading.Barrier(3, timeout=10.0)
    Crew(2).run([barrier.wait] * 3)  # passes only when three threads wait at once


def test_nobody_waits_for_a_helper_that_has_taken_nothing():
    crew, held = Crew(1), threading.Event()
    crew._calls[0].put((iter([held.wait]), crew._calls[0]))  # the helper is busy elsewhere
    done = []
    crew.run([partial(done.append, k) for k in range(5)])
    assert sorted(done) == list(range(5))
    held.set()


def test_an_exception_is_raised_when_all_is_done_and_the_crew_lives_on():
    crew, done = Crew(1), []

    def fail():
        raise ArithmeticError("in a job")

    for _ in range(50):
        with pytest.raises(ArithmeticError, match="in a job"):
            crew.run([fail, *[lambda: done.append(1)] * 3])
    assert len(done) == 150


def test_helpers_go_when_nobody_holds_the_crew():
    others = set(threading.enumerate())  # helpers of earlier crews may still be on their way home
    crew = Crew(3)
    crew.run([lambda: None])
    helpers = set(threading.enumerate()) - others
    assert len(helpers) == 3
    del crew
    gc.collect()
    deadline = time.monotonic() + 10.0
    for helper in helpers:
        helper.join(deadline - time.monotonic())
    assert not any(helper.is_alive() for helper in helpers)
