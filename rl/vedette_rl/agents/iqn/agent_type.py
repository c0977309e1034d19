"""How IQN is built. No torch until an agent is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.core.acting import Policy
from vedette_rl.core.learning import Agent, ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.observation import acts_by_torch, check_network
from vedette_rl.networks.threads import act_on_one_thread

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.networks.greedy import GreedyNetwork


class IqnType:
    """IQN in the registry."""

    name = "iqn"
    config = IqnConfig

    def check(self, config: IqnConfig, spaces: Spaces) -> None:
        """Refuse spaces that IQN cannot take."""
        DiscreteActions.of(self.name, spaces.action)
        check_network(self.name, config.network, spaces.observation)

    def build_agent(self, config: IqnConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
        """The agent, on a torch device."""
        from vedette_rl.agents.iqn.agent import IqnAgent

        self.check(config, spaces)
        return IqnAgent(config, spaces, device=device, seed=seed)

    def build_policy(
        self, config: IqnConfig, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The policy: in numpy on flat observations, in torch on images and behind own encoders."""
        self.check(config, spaces)
        if acts_by_torch(self.name, config.network, spaces.observation):
            act_on_one_thread()
            from vedette_rl.agents.iqn.torch_policy import IqnTorchPolicy

            return IqnTorchPolicy(config, spaces, positions=positions, seed=seed)
        from vedette_rl.agents.iqn.policy import IqnPolicy

        return IqnPolicy(config, spaces, positions=positions, seed=seed)

    def build_greedy(self, config: IqnConfig, spaces: Spaces, model: ModelInfo) -> GreedyNetwork:
        """The greedy policy in torch, for exporters."""
        from vedette_rl.agents.iqn.greedy import GreedyQuantiles

        return GreedyQuantiles(config, spaces, model)
