"""Q(s, .): action values of an observation, all at once."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import nn

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import OwnNetworkError
from vedette_rl.import_by_name import is_named
from vedette_rl.networks.encoder import Obs, build_encoder, make_own_module, shape_for_two
from vedette_rl.networks.mlp import Mlp
from vedette_rl.networks.observation import Image, Seen, choose_input


class QNetwork(nn.Module):
    """Layers to action values; with `dueling` in two streams (Wang et al. 2016, equation 9).

    Args:
        config: its `dueling` and its layers' sizes.
        seen: what it sees of an observation.
        actions: A.
    """

    def __init__(self, config: DqnConfig, seen: Seen, actions: int) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        hidden = config.cnn_hidden_sizes if isinstance(seen, Image) else config.hidden_sizes
        sizes = (self.encoder.features, *hidden)
        self._dueling = config.dueling
        if config.dueling:
            self.torso = Mlp(sizes[:-1], relu_last=True)
            self.value = Mlp((*sizes[-2:], 1))
            self.advantage = Mlp((*sizes[-2:], actions))
        else:
            self.q = Mlp((*sizes, actions))

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, A)``."""
        x: torch.Tensor = self.encoder(obs)
        if not self._dueling:
            q_BA: torch.Tensor = self.q(x)
            return q_BA
        x = self.torso(x)
        value_B1: torch.Tensor = self.value(x)
        advantage_BA: torch.Tensor = self.advantage(x)
        return value_B1 + advantage_BA - advantage_BA.mean(dim=1, keepdim=True)


class OwnQNetwork(nn.Module):
    """Hands columns to a network that knows none.

    Raises:
        UnknownNameError: nothing of its name can be imported.
        OwnNetworkError: it is no Q-network for these spaces, or one that cannot travel.
    """

    def __init__(self, name: str, observation: gym.Space[Any], actions: int) -> None:
        super().__init__()
        self.net = make_own_module(name, observation, actions)
        if not any(parameter.requires_grad for parameter in self.net.parameters()):
            raise OwnNetworkError(
                name,
                "all its parameters are frozen (requires_grad=False), so nothing would learn; "
                "leave one layer at least to learn",
            )
        shape = shape_for_two(self, observation)
        if shape != (2, actions):
            raise OwnNetworkError(
                name,
                f"it gave {shape} for 2 observations and {actions} actions, not (2, {actions})",
            )

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, A)``."""
        q_BA: torch.Tensor = self.net(obs.get("obs", obs))
        return q_BA


def build_q_network(config: DqnConfig, spaces: Spaces) -> nn.Module:
    """The Q-network that a configuration asks for: from columns to ``(B, A)``."""
    actions = DiscreteActions.of(config.name, spaces.action).n
    if is_named(config.network):
        return OwnQNetwork(config.network, spaces.observation, actions)
    seen = choose_input(config.name, config.network, spaces.observation)
    return QNetwork(config, seen, actions)
