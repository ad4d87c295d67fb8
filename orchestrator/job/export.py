"""The policy for use elsewhere: ONNX, and plain arrays for NumPy; both take the task's observations, normaliser inside,
and say what these are."""

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from rsl_rl.models import MLPModel

OUTPUTS = {
    "GaussianDistribution": "mean",
    "HeteroscedasticGaussianDistribution": "mean_and_std",
    "BetaDistribution": "beta",
}
"""What the last layer's numbers are, by the distribution of the actions; see ``navtask.numpy_policy``."""


def export_policy(
    policy: MLPModel, activation: str, distribution: str, interface: Mapping[str, Any] | None, folder: Path
) -> None:
    """Write ``policy.onnx`` (``obs`` (batch, width) -> ``actions`` (batch, A), the deterministic action, unclipped) and
    ``policy.npz`` for ``navtask.numpy_policy``: the normaliser's ``mean`` and ``std``, each layer's ``weight_<i>`` and
    ``bias_<i>``, the ``activation``'s name, and ``output``, what the last layer's numbers are. In both ``interface``
    says what observations and actions are, see ``navtask.interface``; None where the task doesn't tell."""
    model = policy.as_onnx(verbose=False).to("cpu").eval()
    aside = folder / f".policy.onnx.{os.getpid()}"
    with warnings.catch_warnings():
        # The exporter's successor takes 9 s and three more packages for the same perceptron.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            model,
            model.get_dummy_inputs(),
            str(aside),
            opset_version=18,
            input_names=["obs"],
            output_names=["actions"],
            dynamic_axes={"obs": {0: "batch"}, "actions": {0: "batch"}},
            dynamo=False,
        )
    told = {} if interface is None else {"interface": json.dumps(interface)}
    with_metadata = onnx.load(aside)
    onnx.helper.set_model_props(with_metadata, told)
    onnx.save(with_metadata, aside)
    os.replace(aside, folder / "policy.onnx")

    linear = [layer for layer in policy.mlp if isinstance(layer, torch.nn.Linear)]
    width = linear[0].in_features
    arrays = {"mean": np.zeros(width, np.float32), "std": np.ones(width, np.float32)}
    if policy.obs_normalization:
        arrays["mean"] = policy.obs_normalizer.mean.cpu().numpy()
        arrays["std"] = (policy.obs_normalizer.std + policy.obs_normalizer.eps).cpu().numpy()
    arrays |= {name: np.array(text) for name, text in told.items()}
    arrays["activation"], arrays["output"] = np.array(activation), np.array(OUTPUTS[distribution])
    for i, layer in enumerate(linear):
        arrays[f"weight_{i}"] = layer.weight.detach().cpu().numpy()
        arrays[f"bias_{i}"] = layer.bias.detach().cpu().numpy()
    aside = folder / f".policy.npz.{os.getpid()}"
    with open(aside, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    os.replace(aside, folder / "policy.npz")
