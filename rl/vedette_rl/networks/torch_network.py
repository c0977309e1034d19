"""Networks in torch, from the same description as in numpy: for learning, acting and exporting.

Shapes: B rows, F features, D action dimensions, K critics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import observation_columns
from vedette_rl.networks.encoder import CustomQNetwork, Obs, build_encoder
from vedette_rl.networks.layers import LayersFactory, layer_sizes
from vedette_rl.networks.mlp import EnsembleMlp, Mlp
from vedette_rl.networks.numpy_nets import check_arrays
from vedette_rl.networks.observation import CustomInput, NetworkInput, choose_input

if TYPE_CHECKING:  # agents import networks
    from vedette_rl.agents.config import NetworkConfig
    from vedette_rl.agents.network_agent import NetworkPolicy


class TorchNetwork(nn.Module):
    """An encoder and the layers behind it.

    Args:
        config: the layers' sizes.
        seen: the part of the observation that it takes.
        layers: describes the layers.
        size: of an action.
    """

    def __init__(
        self, config: NetworkConfig, seen: NetworkInput, layers: LayersFactory, size: int
    ) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        self._layers = layers(config, layer_sizes(config, seen, self.encoder.features), size)
        for name, mlp in self._layers.mlps.items():
            self.add_module(name, Mlp(mlp.sizes, relu_last=mlp.relu_last))
        for name, constant in self._layers.constants(torch).items():
            self.register_buffer(name, constant, persistent=False)

    def forward(self, obs: Obs, *inputs: torch.Tensor) -> torch.Tensor:
        """The output for columns ``obs...``."""
        output: torch.Tensor = self._layers.forward(torch, self, self.encoder(obs), *inputs)
        return output


def build_network(
    config: NetworkConfig, observation: gym.Space[Any], layers: LayersFactory, size: int
) -> nn.Module:
    """The network that a configuration asks for, from columns to the output of `layers`.

    Args:
        config: names a custom network, or sizes of the built-in one.
        observation: the space.
        layers: describes the layers behind the encoder.
        size: of an action.
    """
    seen = choose_input(config, observation)
    if isinstance(seen, CustomInput) and config.custom_network_is_whole:
        return CustomQNetwork(seen.name, seen.observation, size)
    return TorchNetwork(config, seen, layers, size)


class Critics(nn.Module):
    """K action-value functions of observations and actions in [-1, 1]; they share an encoder."""

    def __init__(self, config: NetworkConfig, seen: NetworkInput, size: int, critics: int) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        self.q = EnsembleMlp(critics, layer_sizes(config, seen, self.encoder.features + size))

    def forward(self, obs: Obs, action_BD: torch.Tensor) -> torch.Tensor:
        """``(K, B)``."""
        q_KB: torch.Tensor = self.q(torch.cat([self.encoder(obs), action_BD], dim=1))
        return q_KB


class TorchActingNetwork:
    """A network on the CPU that only acts, on the arrays of the last model it was given.

    It is in evaluation mode, exploring or not: dropout helps learning, and a policy does without.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network.requires_grad_(False).eval()
        self._parameters = dict(network.named_parameters())
        self._shapes = {name: tuple(p.shape) for name, p in self._parameters.items()}
        self._synced = False

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights; see `vedette_rl.agents.network_agent.ActingNetwork`."""
        check_arrays(self._shapes, model.arrays)
        for name, parameter in self._parameters.items():
            parameter.copy_(torch.tensor(model.arrays[name]))
        self._synced = True

    def __call__(self, obs: Columns, *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for columns ``obs...``."""
        if not self._synced:
            check_arrays(self._shapes, {})  # raises: it has no model to act on
        with torch.inference_mode():
            columns = {name: torch.as_tensor(column) for name, column in obs.items()}
            output = self._network(columns, *(torch.as_tensor(array) for array in inputs))
        array: NDArray[np.float32] = output.numpy()
        return array


class PolicyGraph(nn.Module):
    """A greedy policy as one module: from the observation's columns, in order, to `outputs`.

    Args:
        policy: computes the outputs.
        network: the one that the policy acts on.
        observation: the space of observations.
    """

    def __init__(
        self, policy: NetworkPolicy, network: nn.Module, observation: gym.Space[Any]
    ) -> None:
        super().__init__()
        self.outputs = policy.outputs
        self.leaves = observation_columns(observation)
        self._policy, self.network = policy, network
        self._constants = [f"constant_{k}" for k in range(len(policy.constants))]
        for name, constant in zip(self._constants, policy.constants, strict=True):
            self.register_buffer(name, torch.from_numpy(constant.copy()))

    def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs for columns in their order."""
        names = [leaf.name for leaf in self.leaves]
        obs = dict(zip(names, columns, strict=True))
        constants = (self.get_buffer(name) for name in self._constants)
        return self._policy.greedy(torch, self.network, obs, *constants)
