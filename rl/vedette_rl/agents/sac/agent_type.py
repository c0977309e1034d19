"""How SAC is built. No torch until an agent is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import BoxActions
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.core.acting import Policy
from vedette_rl.core.learning import Agent, ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.observation import check_network, needs_torch_to_act
from vedette_rl.networks.threads import load_torch_single_threaded

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.networks.greedy import GreedyNetwork


class SacType:
    """SAC in the registry."""

    name = "sac"
    config = SacConfig

    def check(self, config: SacConfig, spaces: Spaces) -> None:
        """Refuse spaces that SAC cannot take."""
        BoxActions.from_space(self.name, spaces.action)
        check_network(self.name, config.network, spaces.observation)

    def build_agent(self, config: SacConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
        """The agent, on a torch device."""
        from vedette_rl.agents.sac.agent import SacAgent

        self.check(config, spaces)
        return SacAgent(config, spaces, device=device, seed=seed)

    def build_policy(
        self, config: SacConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The policy: in numpy on flat observations, in torch on images and behind own encoders."""
        self.check(config, spaces)
        if needs_torch_to_act(self.name, config.network, spaces.observation):
            load_torch_single_threaded()
            from vedette_rl.agents.sac.torch_policy import SacTorchPolicy

            return SacTorchPolicy(config, spaces, ranks=ranks, seed=seed)
        from vedette_rl.agents.sac.policy import SacPolicy

        return SacPolicy(config, spaces, ranks=ranks, seed=seed)

    def build_greedy(self, config: SacConfig, spaces: Spaces, model: ModelInfo) -> GreedyNetwork:
        """The greedy policy in torch, for exporters."""
        from vedette_rl.agents.sac.greedy import GreedyGaussian

        return GreedyGaussian(config, spaces, model)
