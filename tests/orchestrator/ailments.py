"""Made curves: those of a healthy training, and of trainings with one ailment each."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from orchestrator.report.curves import RunCurves, gather

SETTINGS = {
    "algorithm.schedule": "adaptive",
    "algorithm.entropy_coef": 0.005,
    "algorithm.num_steps_per_env": 32,
    "num_envs": 256,
    "policy.obs_normalization": True,
    "task.episode_length": 20.0,
    "task.control_dt": 0.1,
}
LENGTH = 120
EVERY = 12

Columns = dict[str, np.ndarray]
"""Metric -> (LENGTH,) one value an iteration; NaN where there is no point."""


def healthy(seed: int) -> Columns:
    """As a default training on cluttered rooms goes, with its noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(1, LENGTH + 1) / LENGTH
    success = 0.9 / (1 + np.exp(-12 * (t - 0.25)))
    late = 0.6 * np.exp(-8 * t)
    evaluated = np.arange(1, LENGTH + 1) % EVERY == 0

    def noisy(curve: np.ndarray | float, noise: float) -> np.ndarray:
        return np.broadcast_to(curve, t.shape) + noise * rng.standard_normal(LENGTH)

    columns = {
        "Episode_Termination/success": noisy(0.95 * success, 0.03),
        "Episode_Termination/timeout": noisy(late, 0.03).clip(0, 1),
        "Episode_Termination/collision": noisy(1 - 0.95 * success - late, 0.03),
        "Episode_Termination/diverged": np.zeros(LENGTH),
        "Episode_Reward/goal": noisy(15 * success, 0.3),
        "Episode_Reward/collision": noisy(-12 * (1 - success), 0.3),
        "Train/mean_reward": noisy(-13 + 36 * success, 1.0),
        "Train/episodes": rng.poisson(120, LENGTH).astype(float),
        "Loss/learning_rate": np.exp(noisy(np.linspace(np.log(5e-3), np.log(1e-4), LENGTH), 0.8)).clip(1e-5, 1e-2),
        "Loss/value": noisy(0.2, 0.02),
        "PPO/kl_first": np.zeros(LENGTH),
        "PPO/kl_overshoot": noisy(0.18, 0.08).clip(0, 1),
        "PPO/explained_variance": noisy(0.5, 0.1),
        "Policy/mean_std": noisy(0.5 - 0.25 * t, 0.005),
        "Policy/obs_mean_abs": noisy(0.5, 0.001),
        "Policy/obs_std_shift": noisy(0.7, 0.001),
        "Policy/action_saturation_vx": noisy(0.05 + 0.2 * t, 0.01),
        "Policy/action_saturation_vy": noisy(0.03, 0.005),
        "Policy/action_saturation_wz": noisy(0.1, 0.01),
        "Perf/collection_time": noisy(0.24, 0.01),
        "Perf/learning_time": noisy(0.16, 0.005),
        "Eval/success_rate": np.where(evaluated, noisy(success, 0.014), np.nan),
    }
    columns["Episode_Termination/timeout"][:6] = 0.0  # no episode can have run out of time
    return columns


def run(columns: Columns, settings: Mapping[str, Any] = SETTINGS) -> RunCurves:
    """What the doctor is handed. A value that is not there differs from one that is not finite: only the held-out
    success rate has gaps."""
    points = [
        (name, step + 1, float(value))
        for name, values in columns.items()
        for step, value in enumerate(values)
        if not (name.startswith("Eval/") and np.isnan(value))
    ]
    return gather(points, settings)


def _failing(columns: Columns) -> None:
    """It never gets anywhere."""
    for name in ("Eval/success_rate", "Episode_Termination/success"):
        columns[name] = columns[name] * 0.02
    columns["Episode_Termination/timeout"][6:] = 0.6
    columns["Episode_Termination/collision"][:] = 0.4
    columns["Train/mean_reward"] = columns["Train/mean_reward"] * 0 - 13 + np.tile([1.0, -1.0], LENGTH // 2)


def _blind(columns: Columns) -> None:
    for name in ("Policy/obs_mean_abs", "Policy/obs_std_shift"):
        columns[name][:] = 0.0


def _floor(columns: Columns) -> None:
    columns["Loss/learning_rate"][80:] = 1e-5


def _ceiling(columns: Columns) -> None:
    columns["Loss/learning_rate"][:40] = 1e-2


def _overshoot(columns: Columns) -> None:
    columns["PPO/kl_overshoot"] = columns["PPO/kl_overshoot"] + 0.5


def _moving_normaliser(columns: Columns) -> None:
    columns["PPO/kl_first"] = 0.05 * np.exp(-np.arange(LENGTH) / 4)


def _collapse(columns: Columns) -> None:
    columns["Policy/mean_std"] = 0.5 * np.exp(-np.arange(LENGTH) / 4)


def _explosion(columns: Columns) -> None:
    first, second = np.linspace(0.3, 0.85, LENGTH // 2), np.linspace(0.85, 0.9, LENGTH // 2)
    columns["Policy/mean_std"] = np.concatenate([first, second])


def _entropy(columns: Columns) -> None:
    _failing(columns)
    columns["Eval/success_rate"] += np.linspace(0, 0.3, LENGTH) * (np.arange(LENGTH) < 60) + 0.3 * (
        np.arange(LENGTH) >= 60
    )
    columns["Eval/success_rate"] += 0.3  # not a failure as a whole
    columns["Policy/mean_std"] = columns["Policy/mean_std"] * 0 + np.linspace(0.5, 0.8, LENGTH)


def _glued(columns: Columns) -> None:
    columns["Policy/mean_std"] += 1.0
    for axis in ("vx", "vy", "wz"):
        columns[f"Policy/action_saturation_{axis}"] += 0.4


def _hacking(columns: Columns) -> None:
    """Success was there, and goes, while something else pays."""
    t = np.linspace(0, 1, LENGTH)
    for name in ("Eval/success_rate", "Episode_Termination/success"):
        columns[name] -= 0.9 * np.clip(t - 0.4, 0, None)
    columns["Episode_Termination/collision"] += 0.9 * np.clip(t - 0.4, 0, None)
    columns["Train/mean_reward"] += 40 * t
    columns["Episode_Reward/near_obstacle"] = 40 * t


def _timid(columns: Columns) -> None:
    t = np.linspace(0, 1, LENGTH)
    noise = columns["Episode_Termination/timeout"] - 0.6 * np.exp(-8 * np.arange(1, LENGTH + 1) / LENGTH)
    late = 0.3 + 0.5 * t
    columns["Episode_Termination/timeout"][6:] = (late + noise)[6:]
    columns["Episode_Termination/collision"] = 0.6 - 0.5 * t
    rises = np.where(t < 0.6, 0.15 * t / 0.6, 0.15)
    columns["Episode_Termination/success"] = rises * 0.2 + 0.08
    columns["Eval/success_rate"] = np.where(np.isnan(columns["Eval/success_rate"]), np.nan, 0.08)
    columns["Eval/success_rate"][-2 * EVERY - 1] = 0.2  # not flat in the last third
    columns["Train/mean_reward"] = columns["Train/mean_reward"] * 0 + np.tile([1.0, -1.0], LENGTH // 2)


def _worthless_critic(columns: Columns) -> None:
    columns["PPO/explained_variance"] -= 0.7


def _burst(columns: Columns) -> None:
    columns["Episode_Termination/timeout"][6:12] = 0.2
    columns["Episode_Termination/timeout"][6] = 0.9
    columns["Train/episodes"][6] = 400.0


def _nan(columns: Columns) -> None:
    columns["Loss/value"][100:] = np.nan


def _unstable(columns: Columns) -> None:
    columns["Episode_Termination/diverged"][49] = 0.02


def _rising(columns: Columns) -> None:
    columns["Eval/success_rate"] = columns["Eval/success_rate"] * np.linspace(0.1, 0.9, LENGTH)


def _slow_env(columns: Columns) -> None:
    columns["Perf/collection_time"] *= 3


def _slow_learner(columns: Columns) -> None:
    columns["Perf/learning_time"] *= 6


AILMENTS: dict[str, tuple[str, Callable[[Columns], None]]] = {
    "blind_policy": ("warning", _blind),
    "lr_at_floor": ("warning", _floor),
    "lr_at_ceiling": ("warning", _ceiling),
    "kl_overshoot": ("warning", _overshoot),
    "first_epoch_kl": ("warning", _moving_normaliser),
    "std_collapse": ("warning", _collapse),
    "std_explosion": ("warning", _explosion),
    "entropy_only": ("warning", _entropy),
    "saturation": ("warning", _glued),
    "reward_hacking": ("warning", _hacking),
    "timid": ("warning", _timid),
    "value_failure": ("warning", _worthless_critic),
    "synchronous_timeouts": ("warning", _burst),
    "plateau": ("warning", _failing),
    "diverged": ("warning", _nan),
    "diverged (state)": ("warning", _unstable),
    "still_rising": ("information", _rising),
    "slow_env": ("information", _slow_env),
    "slow_learner": ("information", _slow_learner),
}
"""Code -> level, and how the healthy curves are changed."""
