"""How DQN is built. No torch until an agent is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.core.acting import Policy
from vedette_rl.core.learning import Agent, ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.observation import check_network, needs_torch_to_act
from vedette_rl.networks.threads import load_torch_single_threaded

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.networks.greedy import GreedyNetwork


class DqnType:
    """DQN in the registry."""

    name = "dqn"
    config = DqnConfig

    def check(self, config: DqnConfig, spaces: Spaces) -> None:
        """Refuse spaces that DQN cannot take."""
        DiscreteActions.from_space(self.name, spaces.action)
        check_network(self.name, config.network, spaces.observation)

    def build_agent(self, config: DqnConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
        """The agent, on a torch device."""
        from vedette_rl.agents.dqn.agent import DqnAgent

        self.check(config, spaces)
        return DqnAgent(config, spaces, device=device, seed=seed)

    def build_policy(
        self, config: DqnConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The policy: in numpy on flat observations, in torch on images and by own networks."""
        self.check(config, spaces)
        if needs_torch_to_act(self.name, config.network, spaces.observation):
            load_torch_single_threaded()
            from vedette_rl.agents.dqn.torch_policy import DqnTorchPolicy

            return DqnTorchPolicy(config, spaces, ranks=ranks, seed=seed)
        from vedette_rl.agents.dqn.policy import DqnPolicy

        return DqnPolicy(config, spaces, ranks=ranks, seed=seed)

    def build_greedy(self, config: DqnConfig, spaces: Spaces, model: ModelInfo) -> GreedyNetwork:
        """The greedy policy in torch, for exporters."""
        from vedette_rl.agents.dqn.greedy import GreedyQ

        return GreedyQ(config, spaces, model)
