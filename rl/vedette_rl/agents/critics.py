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
from vedette_rl.networks.torch_network import EnsembleMlp, RecurrentParts


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
        if config.core_size:
            self.core = nn.GRU(self.encoder.features, config.core_size, batch_first=True)
        features, *hidden = layer_sizes(config, seen, self.encoder.features)
        behind = (*(config.critic_hidden_sizes or hidden), config.n_quantiles)
        self.q = EnsembleMlp(
            config.n_critics,
            MlpSizes((features + size, *behind), architecture=config.critic_architecture),
        )

    def forward(self, obs: Obs, action_BD: torch.Tensor, counts: bool = False) -> torch.Tensor:
        """``(K, B, N)``; `counts`: as of an `EnsembleMlp`."""
        return self.values(self.encoder(obs), action_BD, counts)

    def values(
        self, x_BF: torch.Tensor, action_BD: torch.Tensor, counts: bool = False
    ) -> torch.Tensor:
        """The same of features, or of a memory."""
        q_KBN: torch.Tensor = self.q(torch.cat([x_BF, action_BD], dim=1), counts)
        return q_KBN


class RecurrentCritics(Critics, RecurrentParts):
    """Critics with a recurrent core: `values` of what `windows` remembers."""
