"""Conditional spaces for tests."""

from typing import Any

import optuna


def impossible_for_trial_two(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    return {"algorithm.gamma": 7.0} if trial.number == 2 else {"algorithm.lam": trial.suggest_float("lam", 0.9, 0.95)}
