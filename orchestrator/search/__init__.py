"""Searching: the space, the study, the objective."""
