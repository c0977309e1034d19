"""A greedy policy as one torch module, which exporters trace."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import nn

from vedette_rl.agents.network_policy import NetworkPolicy
from vedette_rl.envs.spaces import observation_columns


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
        self._policy = policy
        self.network = network
        self._constants = [f"constant_{k}" for k in range(len(policy.constants))]
        for name, constant in zip(self._constants, policy.constants, strict=True):
            self.register_buffer(name, torch.from_numpy(constant.copy()))

    def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs for columns in their order."""
        names = [leaf.name for leaf in self.leaves]
        obs = dict(zip(names, columns, strict=True))
        constants = (self.get_buffer(name) for name in self._constants)
        return self._policy.greedy(torch, self.network, obs, *constants)
