"""Q(s, .): action values of an observation, all at once."""

from __future__ import annotations

import torch
from torch import nn

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.networks.encoder import Obs, build_encoder
from vedette_rl.networks.mlp import Mlp
from vedette_rl.networks.observation import Image, NetworkInput


class QNetwork(nn.Module):
    """Layers to action values; with `dueling` in two streams (Wang et al. 2016, equation 9).

    Args:
        config: its `dueling` and its layers' sizes.
        seen: what it sees of an observation.
        actions: A.
    """

    def __init__(self, config: DqnConfig, seen: NetworkInput, actions: int) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        hidden = config.cnn_hidden_sizes if isinstance(seen, Image) else config.hidden_sizes
        sizes = (self.encoder.features, *hidden)
        self._dueling = config.dueling
        if config.dueling:
            self.torso = Mlp(sizes[:-1], relu_last=True)
            self.value = Mlp((*sizes[-2:], 1))
            self.advantage = Mlp((*sizes[-2:], actions))
        else:
            self.q = Mlp((*sizes, actions))

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, A)``."""
        x: torch.Tensor = self.encoder(obs)
        if not self._dueling:
            q_BA: torch.Tensor = self.q(x)
            return q_BA
        x = self.torso(x)
        value_B1: torch.Tensor = self.value(x)
        advantage_BA: torch.Tensor = self.advantage(x)
        return value_B1 + advantage_BA - advantage_BA.mean(dim=1, keepdim=True)
