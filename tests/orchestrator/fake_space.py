"""Conditional spaces for tests."""

from typing import Any

import numpy as np
import optuna


def impossible_for_trial_two(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    return {"algorithm.gamma": 7.0} if trial.number == 2 else {"algorithm.lam": trial.suggest_float("lam", 0.9, 0.95)}


def an_easier_goal(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    return {"task": {"goal_radius": 8.0}}


def an_easier_goal_for_trial_two(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    return {"task.goal_radius": 8.0} if trial.number == 2 else {}


def a_list(trial: optuna.Trial, params: dict[str, Any]) -> Any:
    return ["algorithm.gamma"]


def a_tensor(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    return {"algorithm.gamma": np.float32(0.9)}


def a_typo(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    return {"algorithm.gama": 0.9}


def a_whole_part(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    return {"task": {}}


def too_much(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    return {"algorithm.gamma": trial.suggest_float("gamma", 7, 8)}


def broken(trial: optuna.Trial, params: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("boom")
