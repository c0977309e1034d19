"""The half of IQN that acts with torch: on images, or behind an encoder of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.acting_td_errors import greedy_td_errors
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.iqn.network import QuantileNetwork
from vedette_rl.agents.iqn.policy import ActingFractions
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.exploration import make_exploration
from vedette_rl.networks.image_acting import ActingNetwork
from vedette_rl.networks.observation import choose_input


class IqnImagePolicy:
    """A `Policy` as `IqnPolicy` is, with the network in torch."""

    def __init__(
        self, config: IqnConfig, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._actions = DiscreteActions.of(config.name, spaces.action)
        seen = choose_input(config.name, config.network, spaces.observation)
        self._z = ActingNetwork(QuantileNetwork(config, seen, self._actions.n))
        self._exploration = make_exploration(config.exploration, positions, seed)
        self._fractions = ActingFractions(config, seed)
        self._discount = config.discount
        self._version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on."""
        self._z.sync_model(model)
        self._version = model.version

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.int64]:
        """Actions ``(E,)``."""
        q_EA = self._values(obs, explore=explore)
        if explore:
            return self._exploration.choose(q_EA, self._version) + self._actions.start
        greedy: NDArray[np.int64] = np.argmax(q_EA, axis=1)
        return greedy + self._actions.start

    def td_errors(self, transitions: Columns) -> NDArray[np.float32]:
        """|TD errors| ``(B,)`` of the distributions' means, by the model that it acts on."""
        return greedy_td_errors(
            lambda obs: self._values(obs, explore=False),
            transitions,
            discount=self._discount,
            first_action=self._actions.start,
        )

    def _values(self, obs: Columns, *, explore: bool) -> NDArray[np.float32]:
        taus_1K = self._fractions(explore=explore)[np.newaxis]
        q_EA: NDArray[np.float32] = self._z(obs, taus_1K).mean(axis=1)
        return q_EA
