"""A Q-network of the user's own: any `nn.Module`, named in ``agent.network``.

::

    class MyNet(nn.Module):
        def __init__(self, observation: gym.Space, actions: int) -> None: ...
        def forward(self, obs: torch.Tensor) -> torch.Tensor: ...     # (B, *shape) -> (B, actions)

`obs` comes as the environment gives it (float32 for float64, uint8 images unscaled); of a
dictionary or tuple observation it is a mapping from ``obs/KEY`` to tensors.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import nn

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.network import QNetwork
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import CustomNetworkError
from vedette_rl.named import is_import_name
from vedette_rl.networks.encoder import Obs
from vedette_rl.networks.observation import choose_input
from vedette_rl.networks.own_module import make_custom_module, probe_output_shape


class CustomQNetwork(nn.Module):
    """Hands columns to a network that knows none.

    Raises:
        UnknownNameError: nothing of its name can be imported.
        CustomNetworkError: it is no Q-network for these spaces, or one that cannot travel.
    """

    def __init__(self, name: str, observation: gym.Space[Any], actions: int) -> None:
        super().__init__()
        self.net = make_custom_module(name, observation, actions)
        if not any(parameter.requires_grad for parameter in self.net.parameters()):
            raise CustomNetworkError(
                name,
                "all its parameters are frozen (requires_grad=False), so nothing would learn; "
                "leave one layer at least to learn",
            )
        shape = probe_output_shape(self, observation)
        if shape != (2, actions):
            raise CustomNetworkError(
                name,
                f"it gave {shape} for 2 observations and {actions} actions, not (2, {actions})",
            )

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, A)``."""
        q_BA: torch.Tensor = self.net(obs.get("obs", obs))
        return q_BA


def build_q_network(config: DqnConfig, spaces: Spaces) -> nn.Module:
    """The Q-network that a configuration asks for: from columns to ``(B, A)``."""
    actions = DiscreteActions.from_space(config.name, spaces.action).n
    if is_import_name(config.network):
        return CustomQNetwork(config.network, spaces.observation, actions)
    seen = choose_input(config.name, config.network, spaces.observation)
    return QNetwork(config, seen, actions)
