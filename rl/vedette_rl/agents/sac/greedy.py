"""SAC acting greedily, for exporters."""

from __future__ import annotations

import torch

from vedette_rl.agents.actions import BoxActions
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.sac.network import PolicyNetwork
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.greedy import GreedyNetwork
from vedette_rl.networks.observation import choose_input


class GreedyGaussian(GreedyNetwork):
    """The squashed mean, within the environment's bounds. The model has no critics: no values."""

    low: torch.Tensor
    high: torch.Tensor
    center: torch.Tensor
    half_width: torch.Tensor

    def __init__(self, config: SacConfig, spaces: Spaces, model: ModelInfo) -> None:
        actions = BoxActions.from_space(config.name, spaces.action)
        seen = choose_input(config.name, config.network, spaces.observation)
        super().__init__(PolicyNetwork(config, seen, actions.dimensions), model, spaces.observation)
        self._shape = actions.shape
        for name in ("low", "high", "center", "half_width"):
            self.register_buffer(name, torch.from_numpy(getattr(actions, name).copy()))

    def forward(self, *columns: torch.Tensor) -> torch.Tensor:
        """``(B, *shape)`` float32."""
        mean_BD, _ = self.output(columns).chunk(2, dim=1)
        action_BD = self.center + self.half_width * mean_BD.tanh()
        clipped_BD = action_BD.minimum(self.high).maximum(self.low)
        return clipped_BD.reshape(-1, *self._shape)
