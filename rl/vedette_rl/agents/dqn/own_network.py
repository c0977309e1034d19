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
import numpy as np
import torch
from torch import nn

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.network import QNetwork
from vedette_rl.envs.spaces import Spaces, observation_leaves
from vedette_rl.errors import OwnNetworkError
from vedette_rl.named import is_named, load_named
from vedette_rl.networks.encoder import Obs
from vedette_rl.networks.observation import choose_input


class OwnQNetwork(nn.Module):
    """Hands columns to a network that knows none.

    Raises:
        UnknownNameError: nothing of its name can be imported.
        OwnNetworkError: it is no Q-network for these spaces, or one that cannot travel.
    """

    def __init__(self, name: str, observation: gym.Space[Any], actions: int) -> None:
        super().__init__()
        network = load_named("agent.network", name)(observation, actions)
        if not isinstance(network, nn.Module):
            raise OwnNetworkError(name, f"it made a {type(network).__name__}, not an nn.Module")
        self.net = network
        self._check_weights(name)
        self._check_output(name, observation, actions)

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, A)``."""
        q_BA: torch.Tensor = self.net(obs.get("obs", obs))
        return q_BA

    def _check_weights(self, name: str) -> None:
        """What travels to the actors is parameters of float32, and no more."""
        parameters = dict(self.net.named_parameters())
        for key, tensor in self.net.state_dict().items():
            if key not in parameters:
                raise OwnNetworkError(
                    name,
                    f"its buffer {key!r} would not reach the actors; normalise by LayerNorm, not "
                    "BatchNorm, or register the buffer with persistent=False",
                )
            if tensor.dtype != torch.float32:
                raise OwnNetworkError(name, f"its {key!r} is {tensor.dtype}, not float32")
        if not parameters:
            raise OwnNetworkError(name, "it has no parameters to learn")

    @torch.no_grad()
    def _check_output(self, name: str, observation: gym.Space[Any], actions: int) -> None:
        leaves = observation_leaves(observation)
        obs = {
            leaf.name: torch.zeros(2, *leaf.shape, dtype=_torch_dtype(leaf.dtype))
            for leaf in leaves
        }
        q_BA = self(obs)
        shape = tuple(getattr(q_BA, "shape", ()))
        if shape != (2, actions):
            raise OwnNetworkError(
                name,
                f"it gave {shape} for 2 observations and {actions} actions, not (2, {actions})",
            )


def build_q_network(config: DqnConfig, spaces: Spaces) -> nn.Module:
    """The Q-network that a configuration asks for: from columns to ``(B, A)``."""
    actions = DiscreteActions.of(config.name, spaces.action).n
    if is_named(config.network):
        return OwnQNetwork(config.network, spaces.observation, actions)
    seen = choose_input(config.name, config.network, spaces.observation)
    return QNetwork(config, seen, actions)


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
