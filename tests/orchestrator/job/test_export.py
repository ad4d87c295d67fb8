"""Exported policies give the trained one's actions, wherever they run."""

import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict

import navtask.numpy_policy
from navtask.numpy_policy import ACTIVATIONS as IN_NUMPY
from navtask.numpy_policy import NumpyPolicy
from orchestrator.config.schema import ACTIVATIONS, DISTRIBUTIONS
from orchestrator.job.export import export_policy

OBSERVATIONS = 1000


def make_policy(activation="relu", distribution="GaussianDistribution", normalised=True):
    """A policy with weights as large as trained ones, and a normaliser that has seen something."""
    torch.manual_seed(0)
    observations = TensorDict({"policy": torch.randn(OBSERVATIONS, 78) * 2 + 0.5}, batch_size=[OBSERVATIONS])
    settings = {"class_name": distribution}
    if distribution == "BetaDistribution":
        settings["action_range"] = (-1.0, 1.0)
    policy = MLPModel(
        observations,
        {"actor": ["policy"]},
        "actor",
        3,
        hidden_dims=[64, 64],
        activation=activation,
        obs_normalization=normalised,
        distribution_cfg=settings,
    )
    for layer in policy.mlp:
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.orthogonal_(layer.weight, 1.4)
            torch.nn.init.normal_(layer.bias)
    if normalised:
        policy.update_normalization(observations)
    policy.eval()
    return policy, observations


class TestEqualToTheTrainedPolicy:
    def check(self, tmp_path, activation, distribution, normalised=True):
        policy, observations = make_policy(activation, distribution, normalised)
        export_policy(policy, activation, distribution, {"task": "nav"}, tmp_path)
        with torch.no_grad():
            expected = policy(observations).numpy()
        raw = observations["policy"].numpy()
        in_numpy = NumpyPolicy(tmp_path / "policy.npz")
        assert (in_numpy.width, in_numpy.num_actions, in_numpy.interface) == (78, 3, {"task": "nav"})
        np.testing.assert_allclose(in_numpy(raw), expected, atol=1e-5)
        np.testing.assert_allclose(in_numpy(raw[7]), expected[7], atol=1e-5)
        session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
        np.testing.assert_allclose(session.run(["actions"], {"obs": raw})[0], expected, atol=1e-5)

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_with_every_activation(self, tmp_path, activation):
        self.check(tmp_path, activation, "GaussianDistribution")

    @pytest.mark.parametrize("distribution", DISTRIBUTIONS)
    def test_with_every_distribution(self, tmp_path, distribution):
        self.check(tmp_path, "elu", distribution)

    def test_without_a_normaliser(self, tmp_path):
        self.check(tmp_path, "relu", "GaussianDistribution", normalised=False)

    def test_numpy_knows_every_activation_that_can_be_trained(self):
        assert set(IN_NUMPY) == set(ACTIVATIONS)


def test_runs_with_numpy_alone(tmp_path):
    """The file and the arrays on a machine that has neither this project nor torch."""
    policy, _ = make_policy()
    export_policy(policy, "relu", "GaussianDistribution", None, tmp_path)
    shutil.copy(navtask.numpy_policy.__file__, tmp_path)
    code = (
        "import sys, numpy; from numpy_policy import NumpyPolicy;"
        "print(NumpyPolicy('policy.npz')(numpy.zeros(78)).shape);"
        "assert not {'torch', 'navtask'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "(3,)", done.stderr


def test_says_which_width_it_takes(tmp_path):
    policy, _ = make_policy()
    export_policy(policy, "relu", "GaussianDistribution", None, tmp_path)
    with pytest.raises(ValueError, match="76 wide; this policy takes 78"):
        NumpyPolicy(tmp_path / "policy.npz")(np.zeros(76))
