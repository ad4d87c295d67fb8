"""Bounds of the adaptive schedule, for those as well who read curves and need no torch."""

LEARNING_RATE_MIN, LEARNING_RATE_MAX = 1e-5, 1e-2
"""rsl_rl's."""
