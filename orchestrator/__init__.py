"""Searches reward weights and PPO settings; see the README."""
