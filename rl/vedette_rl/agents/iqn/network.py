"""Z_tau(s, .): samples of the return's distribution, by quantile fraction.

Shapes: B samples, N quantile fractions, A actions, F features, I cosines.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.networks.encoder import Obs, build_encoder
from vedette_rl.networks.mlp import Mlp
from vedette_rl.networks.observation import Image, NetworkInput


class QuantileNetwork(nn.Module):
    """f(psi(s) * phi(tau)) (section 3.1). f is the last hidden layer and the output."""

    cosines: torch.Tensor

    def __init__(self, config: IqnConfig, seen: NetworkInput, actions: int) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        hidden = config.cnn_hidden_sizes if isinstance(seen, Image) else config.hidden_sizes
        sizes = (self.encoder.features, *hidden)
        self.psi = Mlp(sizes[:-1], relu_last=True)
        self.phi = Mlp((config.n_cosines, sizes[-2]), relu_last=True)
        self.f = Mlp((*sizes[-2:], actions))
        # from i = 0: equation 4
        self.register_buffer("cosines", math.pi * torch.arange(config.n_cosines), persistent=False)

    def forward(self, obs: Obs, taus_BN: torch.Tensor) -> torch.Tensor:
        """``(B, N, A)``."""
        psi_B1F = self.psi(self.encoder(obs)).unsqueeze(1)
        phi_BNF = self.phi(torch.cos(taus_BN.unsqueeze(2) * self.cosines))
        z_BNA: torch.Tensor = self.f(psi_B1F * phi_BNF)
        return z_BNA
