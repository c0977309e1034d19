"""The half of DQN that acts with torch: on images, or with a network of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_values import ActionChooser
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.own_network import build_q_network
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.acting_network import ActingNetwork


class DqnTorchPolicy:
    """A `Policy` as `DqnPolicy` is, with the network in torch."""

    def __init__(
        self, config: DqnConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._choice = ActionChooser(config, spaces.action, ranks, seed)
        self._q = ActingNetwork(build_q_network(config, spaces))
        self._version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on."""
        self._q.sync_model(model)
        self._version = model.version

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.int64]:
        """Actions ``(E,)``."""
        q_EA = self._q(obs)
        return self._choice.choose(q_EA, self._version, explore=explore)

    def td_errors(self, transitions: Columns) -> NDArray[np.float32]:
        """|TD errors| ``(B,)`` of transitions, by the model that it acts on."""
        return self._choice.td_errors(self._q, transitions)
