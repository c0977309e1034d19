"""The half of TD3 that acts. No torch. Shapes: E environments, D action dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_noise import describe_color
from vedette_rl.agents.actions import BoxActions, to_bounds
from vedette_rl.agents.network_agent import ActingHead, network_agent
from vedette_rl.agents.network_policy import BoxPolicy
from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.agents.td3.network import DeterministicLayers
from vedette_rl.core.learning import Agent
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.layers import Array


class Td3Policy(BoxPolicy[Td3Config]):
    """A `Policy`: adds Gaussian noise while it explores."""

    @classmethod
    def describe(cls, config: Td3Config, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`."""
        return {
            "head": "deterministic",
            "actions": BoxActions.from_space(config.name, spaces.action).describe(),
            "noise": config.exploration_noise,
            "uniform_warmup": config.uniform_warmup,
            **describe_color(config),
        }

    def greedy(
        self, xp: Any, network: Callable[..., Array], obs: Any, *constants: Array
    ) -> tuple[Array, ...]:
        """Actions ``(E, *shape)`` within the environment's bounds."""
        return (to_bounds(network(obs), *constants).reshape(-1, *self._shape),)

    def draw(self, output: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions ``(E, D)`` with noise."""
        noise_ED = self._noise.draw(len(output))
        scale = np.float32(self._config.exploration_noise)
        return (output + scale * noise_ED).clip(-1.0, 1.0)


def build_agent(config: Td3Config, spaces: Spaces, *, device: str, seed: int) -> Agent:
    """The half that learns."""
    if config.core_size:
        from vedette_rl.agents.td3.recurrent import RecurrentTd3Agent

        return RecurrentTd3Agent(config, spaces, device=device, seed=seed)
    from vedette_rl.agents.td3.agent import Td3Agent

    return Td3Agent(config, spaces, device=device, seed=seed)


KIND = network_agent(Td3Config, build_agent, ActingHead(Td3Policy, DeterministicLayers, BoxActions))
