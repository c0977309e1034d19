"""The half of SAC that acts with torch: on images, or behind an encoder of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import BoxActions
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
        self, config: SacConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> None:
        actions = BoxActions.from_space(config.name, spaces.action)
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
