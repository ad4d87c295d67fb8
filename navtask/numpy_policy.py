"""A trained policy with NumPy alone: copy this file and a run's ``policy.npz`` to the robot.

policy = NumpyPolicy("policy.npz")
action = policy(observation)        # raw observations in, the normaliser is inside

The deterministic action of the training, not clipped: the task clips it to [-1, 1] and scales it to the robot's limits.
"""

import math
from collections.abc import Callable
from os import PathLike

import numpy as np

Array = np.ndarray


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x).astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    return np.exp(-_softplus(-x))


_erf = np.vectorize(math.erf, otypes=[np.float32])

# As torch.nn has them, by the names of the training's settings.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "relu": lambda x: np.maximum(x, 0),
    "lrelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "swish": lambda x: x * _sigmoid(x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
}


class NumpyPolicy:
    """Observations (..., ``width``) to actions (..., ``num_actions``), float32."""

    def __init__(self, path: str | PathLike[str]):
        with np.load(path, allow_pickle=False) as arrays:
            self._mean = arrays["mean"]
            self._std = arrays["std"]
            layers = sum(name.startswith("weight_") for name in arrays.files)
            self._layers = [(arrays[f"weight_{i}"].T, arrays[f"bias_{i}"]) for i in range(layers)]
            self._activation = ACTIVATIONS[str(arrays["activation"])]
            self._output = str(arrays["output"])
        self.width = self._layers[0][0].shape[0]
        self.num_actions = self._layers[-1][1].size // (1 if self._output == "mean" else 2)

    def __call__(self, observation: Array) -> Array:
        """Raises ValueError for observations of another width."""
        x = np.asarray(observation, dtype=np.float32)
        if x.shape[-1] != self.width:
            raise ValueError(f"observations are {x.shape[-1]} wide; this policy takes {self.width}")
        x = (x - self._mean) / self._std
        for weight, bias in self._layers[:-1]:
            x = self._activation(x @ weight + bias)
        weight, bias = self._layers[-1]
        x = x @ weight + bias
        if self._output == "mean":
            return x
        first, second = x[..., : self.num_actions], x[..., self.num_actions :]
        if self._output == "mean_and_std":
            return first
        # Beta(a, b) on [-1, 1]: 2 a / (a + b) - 1 (Chou, Maturana, Scherer 2017).
        a, b = _softplus(first) + 1, _softplus(second) + 1
        return 2 * a / (a + b) - 1
