"""The half of SAC that acts with torch: on images, or behind an encoder of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.agents.actions import BoxActions
from vedette_rl.agents.greedy_network import GreedyNetwork
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.sac.network import PolicyNetwork
from vedette_rl.agents.sac.policy import ActionDraw
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.acting_network import ActingNetwork
from vedette_rl.networks.observation import choose_input


class SacTorchPolicy:
    """A `Policy` as `SacPolicy` is, with the network in torch."""

    def __init__(
        self, config: SacConfig, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> None:
        actions = BoxActions.of(config.name, spaces.action)
        seen = choose_input(config.name, config.network, spaces.observation)
        self._policy = ActingNetwork(PolicyNetwork(config, seen, actions.dimensions))
        self._draw = ActionDraw(config, actions, seed)
        self._version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on."""
        self._policy.sync_model(model)
        self._version = model.version

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.float32]:
        """Actions ``(E, *shape)`` within the environment's bounds."""
        return self._draw(self._policy(obs), explore=explore, version=self._version)


class GreedyGaussian(GreedyNetwork):
    """The squashed mean, within the environment's bounds. The model has no critics: no values."""

    low: torch.Tensor
    high: torch.Tensor
    center: torch.Tensor
    half_width: torch.Tensor

    def __init__(self, config: SacConfig, spaces: Spaces, model: ModelInfo) -> None:
        actions = BoxActions.of(config.name, spaces.action)
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
