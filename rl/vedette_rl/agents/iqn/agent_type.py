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
from vedette_rl.networks.observation import check_network, needs_torch_to_act
from vedette_rl.networks.threads import load_torch_single_threaded

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.networks.greedy import GreedyNetwork


class IqnType:
    """IQN in the registry."""

    name = "iqn"
    config = IqnConfig

    def check(self, config: IqnConfig, spaces: Spaces) -> None:
        """Refuse spaces that IQN cannot take."""
        DiscreteActions.from_space(self.name, spaces.action)
        check_network(self.name, config.network, spaces.observation)

    def build_agent(self, config: IqnConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
        """The agent, on a torch device."""
        from vedette_rl.agents.iqn.agent import IqnAgent

        self.check(config, spaces)
        return IqnAgent(config, spaces, device=device, seed=seed)

    def build_policy(
        self, config: IqnConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The policy: in numpy on flat observations, in torch on images and behind own encoders."""
        self.check(config, spaces)
        if needs_torch_to_act(self.name, config.network, spaces.observation):
            load_torch_single_threaded()
            from vedette_rl.agents.iqn.torch_policy import IqnTorchPolicy

            return IqnTorchPolicy(config, spaces, ranks=ranks, seed=seed)
        from vedette_rl.agents.iqn.policy import IqnPolicy

        return IqnPolicy(config, spaces, ranks=ranks, seed=seed)

    def build_greedy(self, config: IqnConfig, spaces: Spaces, model: ModelInfo) -> GreedyNetwork:
        """The greedy policy in torch, for exporters."""
        from vedette_rl.agents.iqn.greedy import GreedyQuantiles

        return GreedyQuantiles(config, spaces, model)
