"""Threads that lend a hand with work so short that waking them takes as long as a good part of it."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread

Job = Callable[[], None]


class Crew:
    """``helpers`` threads beside the caller's, which share the jobs of a ``run``: each takes the next one left.

    The caller begins at once and waits for no helper that has taken none. Jobs gain by it that let go of the
    interpreter's lock, as Warp's kernels do.
    """

    def __init__(self, helpers: int):
        self._calls: list[_Calls] = [SimpleQueue() for _ in range(helpers)]
        for calls in self._calls:
            Thread(target=_help, args=(calls,), name="crew", daemon=True).start()
            weakref.finalize(self, calls.put, None)  # a crew that nobody holds any more goes home

    def run(self, jobs: Sequence[Job]) -> None:
        """Do all ``jobs``, in any order. An exception in one of them is raised when all are done."""
        left = iter(jobs)  # one for all threads: to take the next is a single step of the interpreter
        done: _Done = SimpleQueue()
        for calls in self._calls:
            calls.put((left, done))
        _work(left, done)
        errors = [done.get() for _ in jobs]
        for error in errors:
            if error is not None:
                raise error


_Done = SimpleQueue[BaseException | None]
_Calls = SimpleQueue[tuple[Iterator[Job], _Done] | None]


def _help(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        _work(*call)


def _work(left: Iterator[Job], done: _Done) -> None:
    for job in left:
        try:
            job()
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)
