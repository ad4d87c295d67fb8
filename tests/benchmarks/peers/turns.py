"""How several programs are measured in turns: each waits at its standard input for the seconds of its next turn, and
prints one line of JSON with its environment steps per second at the end of it.

    printf '3\n3\n' | build/peers/sb3/bin/python tests/benchmarks/peers/sb3_env.py
"""

import json
import sys
import time


class Turns:
    """Books steps. Made once everything is warm; says that it is ready, and returns when the first turn begins."""

    def __init__(self) -> None:
        print(json.dumps({"ready": True}), flush=True)
        self._wait()

    def go_on(self, steps: int) -> bool:
        """Book steps that were made; False when there are no more turns."""
        self._steps += steps
        seconds = time.perf_counter() - self._started
        if seconds < self._length:
            return True
        print(json.dumps({"steps_per_s": self._steps / seconds}), flush=True)
        return self._wait()

    def _wait(self) -> bool:
        line = sys.stdin.readline()
        self._length, self._steps, self._started = float(line or 0), 0, time.perf_counter()
        return bool(line)
