"""DQN acting greedily, for exporters."""

from __future__ import annotations

import torch

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.own_network import build_q_network
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.greedy import GreedyNetwork


class GreedyQ(GreedyNetwork):
    """The action of the highest Q, and Q of all."""

    outputs = ("action", "q")

    def __init__(self, config: DqnConfig, spaces: Spaces, model: ModelInfo) -> None:
        actions = DiscreteActions.from_space(config.name, spaces.action)
        super().__init__(build_q_network(config, spaces), model, spaces.observation)
        self._start = actions.start

    def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``(B,)`` int64 and ``(B, A)``."""
        q_BA = self.output(columns)
        return q_BA.argmax(dim=1) + self._start, q_BA
