"""The half of DQN that acts with torch: on images, or with a network of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.agents.action_values import ActionChoice
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.network import build_q_network
from vedette_rl.agents.greedy_network import GreedyNetwork
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.acting_network import ActingNetwork


class DqnTorchPolicy:
    """A `Policy` as `DqnPolicy` is, with the network in torch."""

    def __init__(
        self, config: DqnConfig, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._choice = ActionChoice(config, spaces.action, positions, seed)
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


class GreedyQ(GreedyNetwork):
    """The action of the highest Q, and Q of all."""

    outputs = ("action", "q")

    def __init__(self, config: DqnConfig, spaces: Spaces, model: ModelInfo) -> None:
        actions = DiscreteActions.of(config.name, spaces.action)
        super().__init__(build_q_network(config, spaces), model, spaces.observation)
        self._start = actions.start

    def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``(B,)`` int64 and ``(B, A)``."""
        q_BA = self.output(columns)
        return q_BA.argmax(dim=1) + self._start, q_BA
