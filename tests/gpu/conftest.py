"""Tests that need a GPU; they share the helpers of the tests that don't."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "navtask"))
sys.path.insert(0, str(TESTS / "navtask" / "physics"))
