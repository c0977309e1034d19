"""A greedy policy as one torch module, which exporters trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from vedette_rl.agents.network_policy import NetworkPolicy
from vedette_rl.agents.recurrent_policy import MEMORY
from vedette_rl.envs.spaces import observation_columns
from vedette_rl.networks.torch_network import NormalizedRecurrentModule


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

    def example_inputs(self, rows: int) -> dict[str, torch.Tensor]:
        """Inputs of `forward` by name, in their order: zeros of so many rows."""
        return {
            leaf.name: torch.from_numpy(np.zeros((rows, *leaf.shape), leaf.dtype))
            for leaf in self.leaves
        }

    def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs for columns in their order."""
        return self._greedy(self.network, columns)

    def _greedy(
        self, network: Callable[..., torch.Tensor], columns: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        names = [leaf.name for leaf in self.leaves]
        obs = dict(zip(names, columns, strict=True))
        constants = (self.get_buffer(name) for name in self._constants)
        return self._policy.greedy(torch, network, obs, *constants)


NEXT_MEMORY = "next_memory"
"""The output of what is remembered after an observation."""


class RecurrentPolicyGraph(PolicyGraph):
    """The same of a policy with memory: from the observation's columns and the memory before it,
    float32 ``(batch, H)``, to `outputs`, of which the last is the memory after it.

    Memory is zeros where an episode begins.
    """

    network: NormalizedRecurrentModule

    def __init__(
        self,
        policy: NetworkPolicy,
        network: NormalizedRecurrentModule,
        observation: gym.Space[Any],
    ) -> None:
        super().__init__(policy, network, observation)
        self.outputs = (*policy.outputs, NEXT_MEMORY)

    def example_inputs(self, rows: int) -> dict[str, torch.Tensor]:
        """See `PolicyGraph.example_inputs`; ``memory`` is the last."""
        memory = torch.zeros(rows, self.network.memory_size)
        return {**super().example_inputs(rows), MEMORY: memory}

    def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs for columns in their order, and the memory before them."""
        *observed, before = columns
        names = [leaf.name for leaf in self.leaves]
        after = self.network.remember(dict(zip(names, observed, strict=True)), before)

        def output(_: object, *inputs: torch.Tensor) -> torch.Tensor:
            return self.network.output(after, *inputs)

        return (*self._greedy(output, observed), after)
