"""The critics of agents with a policy, in torch.

Shapes: B rows, D action dimensions, K critics, N numbers of each.
"""

from __future__ import annotations

import torch
from torch import nn

from vedette_rl.agents.config import ActorCriticConfig
from vedette_rl.networks.encoder import Obs, build_encoder
from vedette_rl.networks.layers import MlpSizes, layer_sizes
from vedette_rl.networks.observation import NetworkInput
from vedette_rl.networks.torch_network import EnsembleMlp


class Critics(nn.Module):
    """K action-value functions of observations and actions in [-1, 1]; they share an encoder.

    Args:
        config: K and N, and the layers' sizes.
        seen: the part of the observation that they take.
        size: the size of an action.
    """

    def __init__(self, config: ActorCriticConfig, seen: NetworkInput, size: int) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        features, *hidden = layer_sizes(config, seen, self.encoder.features + size)
        sizes = (features, *(config.critic_hidden_sizes or hidden), config.n_quantiles)
        self.q = EnsembleMlp(
            config.n_critics, MlpSizes(sizes, architecture=config.critic_architecture)
        )

    def forward(self, obs: Obs, action_BD: torch.Tensor, counts: bool = False) -> torch.Tensor:
        """``(K, B, N)``; `counts`: as of an `EnsembleMlp`."""
        q_KBN: torch.Tensor = self.q(torch.cat([self.encoder(obs), action_BD], dim=1), counts)
        return q_KBN
