"""pi(a | s), Q(s, a) and alpha. Shapes: B samples, D action dimensions, K critics."""

from __future__ import annotations

import torch
from torch import nn

from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.networks.encoder import Obs, build_encoder
from vedette_rl.networks.ensemble import EnsembleMlp
from vedette_rl.networks.mlp import Mlp
from vedette_rl.networks.observation import Image, NetworkInput


class PolicyNetwork(nn.Module):
    """The Gaussian of which an action is drawn, before it is squashed."""

    def __init__(self, config: SacConfig, seen: NetworkInput, dimensions: int) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        self.policy = Mlp((self.encoder.features, *_hidden(config, seen), 2 * dimensions))

    def forward(self, obs: Obs) -> torch.Tensor:
        """Means and, unbounded yet, log standard deviations side by side: ``(B, 2 D)``."""
        gaussian_B2D: torch.Tensor = self.policy(self.encoder(obs))
        return gaussian_B2D


class Critics(nn.Module):
    """K action-value functions of observations and actions in [-1, 1]; they share an encoder."""

    def __init__(self, config: SacConfig, seen: NetworkInput, dimensions: int) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        features = self.encoder.features + dimensions
        self.q = EnsembleMlp(config.n_critics, (features, *_hidden(config, seen)))

    def forward(self, obs: Obs, action_BD: torch.Tensor) -> torch.Tensor:
        """``(K, B)``."""
        q_KB: torch.Tensor = self.q(torch.cat([self.encoder(obs), action_BD], dim=1))
        return q_KB


class Temperature(nn.Module):
    """alpha, which weighs entropy against return."""

    def __init__(self, initial_alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(initial_alpha).log())

    def forward(self) -> torch.Tensor:
        """alpha, without a gradient: neither the critics nor the policy tune it."""
        return self.log_alpha.detach().exp()


def _hidden(config: SacConfig, seen: NetworkInput) -> tuple[int, ...]:
    return config.cnn_hidden_sizes if isinstance(seen, Image) else config.hidden_sizes
