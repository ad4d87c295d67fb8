"""A six-axis arm reaches a point."""
