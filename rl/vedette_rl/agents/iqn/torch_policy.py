"""The half of IQN that acts with torch: on images, or behind an encoder of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_values import ActionChooser
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.iqn.network import QuantileNetwork
from vedette_rl.agents.iqn.policy import ActingFractions
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.acting_network import ActingNetwork
from vedette_rl.networks.observation import choose_input


class IqnTorchPolicy:
    """A `Policy` as `IqnPolicy` is, with the network in torch."""

    def __init__(
        self, config: IqnConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._choice = ActionChooser(config, spaces.action, ranks, seed)
        seen = choose_input(config.name, config.network, spaces.observation)
        self._z = ActingNetwork(QuantileNetwork(config, seen, self._choice.actions.n))
        self._fractions = ActingFractions(config, seed)
        self._version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on."""
        self._z.sync_model(model)
        self._version = model.version

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.int64]:
        """Actions ``(E,)``."""
        q_EA = self._values(obs, explore=explore)
        return self._choice.choose(q_EA, self._version, explore=explore)

    def td_errors(self, transitions: Columns) -> NDArray[np.float32]:
        """|TD errors| ``(B,)`` of the distributions' means, by the model that it acts on."""
        return self._choice.td_errors(lambda obs: self._values(obs, explore=False), transitions)

    def _values(self, obs: Columns, *, explore: bool) -> NDArray[np.float32]:
        taus_1K = self._fractions(explore=explore)[np.newaxis]
        q_EA: NDArray[np.float32] = self._z(obs, taus_1K).mean(axis=1)
        return q_EA
