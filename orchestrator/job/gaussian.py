"""The Gaussian policy whose spread is the same in all states."""

import math

import torch
from rsl_rl.modules.distribution import GaussianDistribution


class Gaussian(GaussianDistribution):
    """rsl_rl's, with its formulas written for the few standard deviations (A,) that all samples share.

    torch's ``Normal`` makes (N, A) of them first, takes as many logarithms, and adds them all up again on the way back:
    in a mini-batch that costs as much as the network itself.
    """

    def update(self, mlp_output: torch.Tensor) -> None:
        """Take means (N, A) from the network."""
        super().update(mlp_output)
        self._sigma = self.std_param.clamp(*self.std_range)

    @property
    def entropy(self) -> torch.Tensor:
        """(N,) nats, all the same."""
        # H = sum log sigma + A/2 (1 + log 2 pi)
        total = self._sigma.log().sum() + 0.5 * self.output_dim * (1.0 + math.log(2.0 * math.pi))
        return total.expand(self.mean.shape[:-1])

    def log_prob(self, outputs: torch.Tensor) -> torch.Tensor:
        """(N,) of actions (N, A)."""
        # log N(a; mu, sigma) = -1/2 |(a - mu) / sigma|^2 - sum log sigma - A/2 log 2 pi
        z = (outputs - self.mean) / self._sigma
        normaliser = self._sigma.log().sum() + 0.5 * self.output_dim * math.log(2.0 * math.pi)
        return -0.5 * z.square().sum(-1) - normaliser
