"""A trained policy with NumPy alone: copy this file and a run's ``policy.npz`` to the robot.

``Controller`` takes what is measured, in SI units, and returns what is commanded, in SI units. ``NumpyPolicy`` is the
network alone: scaled observations in (its normaliser is inside), actions out, of which [-1, 1] is the robot's range.

What both are about is told by ``NumpyPolicy.interface``, which is in ``policy.npz`` as ``interface`` (JSON), in
``policy.onnx`` as metadata of that name, and in MLflow's model as metadata:

    task          the task's name
    control_dt    seconds between two actions
    goal_radius   in training the goal was reached within this distance, m: nothing was learnt of what is nearer
    observation   width, of all that the policy sees; history, how many frames that are; and its terms. A frame is the
                  terms in order; of several the oldest comes first, and the first one of an episode fills them all
      terms       name; start and width, in the frame; input, its unit, input_width and meaning: what is measured;
                  transform with its formula, scale and offset: how that becomes the values. Of a scan also angle_min
                  and angle_increment, rad, as ROS has them
    action        its axes, in order: name, unit, scale, meaning. The command is clip(action, -1, 1) * scale

Directions are those of ROS (REP 103): x forward, y left, angles counter-clockwise.
"""

import difflib
import json
import math
import zipfile
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, NamedTuple

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


def _linear(x: Array, scale: float, offset: Array) -> Array:
    return (x - offset) / scale


def _range(x: Array, scale: float, offset: Array) -> Array:
    return np.clip(np.where(np.isnan(x), np.inf, x), 0, scale) / scale


def _polar(x: Array, scale: float, offset: Array) -> Array:
    distance = np.hypot(x[0], x[1])
    return np.array([distance / scale, *(x[::-1] / max(distance, 1e-6))])


class Transform(NamedTuple):
    """From what is measured to an observation's values."""

    formula: str
    function: Callable[[Array, float, Array], Array]


TRANSFORMS = {
    "linear": Transform("(x - offset) / scale", _linear),
    "range": Transform("clip(x, 0, scale) / scale, and 1 where nothing came back (inf or nan)", _range),
    "polar": Transform("[hypot(x, y) / scale, sin(atan2(y, x)), cos(atan2(y, x))]", _polar),
}
"""By the names that an interface's terms have for them."""


class NumpyPolicy:
    """Observations (..., ``width``) to actions (..., ``num_actions``), float32."""

    interface: dict[str, Any] | None
    """See above; None in a file that an earlier version wrote."""

    def __init__(self, path: str | PathLike[str]):
        """Raises OSError for a file that can't be read, ValueError for one that is no policy, or not a whole one."""
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError(f"{path} is not a policy.npz, or not a whole one")
        try:
            self._read(path)
        except OSError:
            raise
        except Exception as error:  # NumPy raises whatever the damage leads to
            raise ValueError(f"{path} is not a policy.npz, or not a whole one: {error}") from error

    def _read(self, path: str | PathLike[str]) -> None:
        with np.load(path, allow_pickle=False) as arrays:
            self._mean = arrays["mean"]
            self._std = arrays["std"]
            layers = sum(name.startswith("weight_") for name in arrays.files)
            self._layers = [(arrays[f"weight_{i}"].T, arrays[f"bias_{i}"]) for i in range(layers)]
            self._activation = ACTIVATIONS[str(arrays["activation"])]
            self._output = str(arrays["output"])
            self.interface = json.loads(str(arrays["interface"])) if "interface" in arrays.files else None
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


class Controller:
    """What is measured to what is commanded, both in SI units: to be called once every ``control_dt`` seconds.

    controller = Controller("policy.npz")
    v_forward, v_left, yaw_rate = controller(scan=ranges, goal=(2.0, 0.5), vel_body=(0.3, 0.0), omega=0.1)
    """

    observation: Array
    """(``width``,) what the policy saw last."""

    def __init__(self, path: str | PathLike[str]):
        """Raises as ``NumpyPolicy``, and ValueError for a file that doesn't say what its observations are."""
        self.policy = NumpyPolicy(path)
        if self.policy.interface is None:
            raise ValueError(f"{path} doesn't say what its observations are: train it again, or use NumpyPolicy")
        self.interface = self.policy.interface
        self.control_dt = float(self.interface["control_dt"])
        self._scale = np.array([axis["scale"] for axis in self.interface["action"]["axes"]])
        self.reset()

    def reset(self) -> None:
        """Begin anew, say with another goal: nothing is remembered of before."""
        self._action = np.zeros(len(self._scale))
        self._frames: list[Array] = []

    def __call__(self, **measured: Any) -> Array:
        """(A,) commands, in the units of the action's axes; ``measured`` as for ``observe``."""
        self._action = np.clip(self.policy(self.observe(**measured)), -1.0, 1.0).astype(float)
        return self._action * self._scale

    def observe(self, **measured: Any) -> Array:
        """(``width``,) what the policy sees of this instant, and of those before where it sees a history.

        ``measured``: each input of the interface's terms by its name. The last action is known here. Raises ValueError
        where one is missing, unknown, of another width, or not finite. Ranges may be inf, or nan, where nothing came
        back, and -inf where it came from too near (REP 117); measured from the body's centre, none else is 0 or less.
        """
        terms = self.interface["observation"]["terms"]
        known = {"action": self._action, **measured}
        inputs = {term["input"]: term for term in terms}
        wrong = [f"{name} is unknown{_nearest(name, inputs)}" for name in measured if name not in inputs]
        wrong += [f"{name} is missing" for name in inputs if name not in known]
        if wrong:
            expected = ", ".join(f"{name} ({t['input_width']}, {t['unit']})" for name, t in inputs.items())
            raise ValueError(f"{', '.join(wrong)}; expected {expected}")
        frame = np.concatenate([_values(term, known[term["input"]]) for term in terms])
        history = self.interface["observation"]["history"]
        self._frames = [*(self._frames or [frame] * history), frame][-history:]
        self.observation = np.concatenate(self._frames).astype(np.float32)
        return self.observation


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" (nearest: {near[0]})" if near else ""


def _values(term: dict[str, Any], given: Any) -> Array:
    x = np.atleast_1d(np.asarray(given, dtype=float))
    if x.shape != (term["input_width"],):
        raise ValueError(f"{term['input']} has shape {x.shape}, expected ({term['input_width']},)")
    if term["transform"] == "range":
        (wrong,) = np.nonzero((x <= 0) & np.isfinite(x))
        if wrong.size:
            told = f"{wrong.size} of {x.size} ranges, the first at {wrong[0]}: {x[wrong[0]]:g}"
            raise ValueError(f"{term['input']} is not above 0 ({told}); where nothing came back it must be inf")
    values = TRANSFORMS[term["transform"]].function(x, term["scale"], np.array(term["offset"]))
    if not np.isfinite(values).all():
        raise ValueError(f"{term['input']} is not finite")
    return values
