"""The half of DQN that acts with torch: on images, or with a network of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.acting_td_errors import greedy_td_errors
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.own_network import build_q_network
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.exploration import make_exploration
from vedette_rl.networks.image_acting import ActingNetwork


class DqnTorchPolicy:
    """A `Policy` as `DqnPolicy` is, with the network in torch."""

    def __init__(
        self, config: DqnConfig, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._actions = DiscreteActions.of(config.name, spaces.action)
        self._q = ActingNetwork(build_q_network(config, spaces))
        self._exploration = make_exploration(config.exploration, positions, seed)
        self._discount = config.discount
        self._version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on."""
        self._q.sync_model(model)
        self._version = model.version

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.int64]:
        """Actions ``(E,)``."""
        q_EA = self._q(obs)
        if explore:
            return self._exploration.choose(q_EA, self._version) + self._actions.start
        greedy: NDArray[np.int64] = np.argmax(q_EA, axis=1)
        return greedy + self._actions.start

    def td_errors(self, transitions: Columns) -> NDArray[np.float32]:
        """|TD errors| ``(B,)`` of transitions, by the model that it acts on."""
        return greedy_td_errors(
            self._q, transitions, discount=self._discount, first_action=self._actions.start
        )
