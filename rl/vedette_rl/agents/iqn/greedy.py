"""IQN acting greedily, for exporters."""

from __future__ import annotations

import torch

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.iqn.network import QuantileNetwork
from vedette_rl.agents.iqn.policy import ActingFractions
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.greedy import GreedyNetwork
from vedette_rl.networks.observation import choose_input


class GreedyQuantiles(GreedyNetwork):
    """The action of the highest mean return, and the means of all, at the policy's fractions."""

    outputs = ("action", "q")
    fractions: torch.Tensor  # (1, K)

    def __init__(self, config: IqnConfig, spaces: Spaces, model: ModelInfo) -> None:
        actions = DiscreteActions.from_space(config.name, spaces.action)
        seen = choose_input(config.name, config.network, spaces.observation)
        super().__init__(QuantileNetwork(config, seen, actions.n), model, spaces.observation)
        self._start = actions.start
        taus_K = ActingFractions(config, seed=0)(explore=False)
        self.register_buffer("fractions", torch.from_numpy(taus_K).unsqueeze(0))

    def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``(B,)`` int64 and ``(B, A)``."""
        q_BA = self.output(columns, self.fractions).mean(dim=1)
        return q_BA.argmax(dim=1) + self._start, q_BA
