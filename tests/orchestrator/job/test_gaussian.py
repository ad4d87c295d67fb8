"""The closed forms are those of torch's own distribution."""

import pytest
import torch
from rsl_rl.modules.distribution import GaussianDistribution

from orchestrator.job.gaussian import Gaussian


@pytest.fixture
def pair() -> tuple[Gaussian, GaussianDistribution]:
    """Ours and rsl_rl's, at the same means and standard deviations."""
    ours, theirs = Gaussian(3), GaussianDistribution(3)
    with torch.no_grad():
        ours.std_param.copy_(torch.tensor([0.2, 1.0, 3.0]))
    theirs.load_state_dict(ours.state_dict())
    means = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    ours.update(means)
    theirs.update(means)
    return ours, theirs


def test_log_probability_and_its_gradient(pair):
    actions = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    logs = [each.log_prob(actions) for each in pair]
    torch.testing.assert_close(*logs)
    gradients = [torch.autograd.grad(log.sum(), each.std_param)[0] for log, each in zip(logs, pair, strict=True)]
    torch.testing.assert_close(*gradients)


def test_entropy_and_its_gradient(pair):
    entropies = [each.entropy for each in pair]
    torch.testing.assert_close(*entropies)
    gradients = [torch.autograd.grad(h.mean(), each.std_param)[0] for h, each in zip(entropies, pair, strict=True)]
    torch.testing.assert_close(*gradients)
