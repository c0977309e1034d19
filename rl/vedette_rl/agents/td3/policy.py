"""TD3's hyperparameters, and the half that acts. No torch.

Shapes: B rows, E environments, D action dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from vedette_rl.agents.actions import BoxActions, to_bounds
from vedette_rl.agents.config import ActorCriticConfig
from vedette_rl.agents.network_agent import network_agent
from vedette_rl.agents.network_policy import BoxPolicy
from vedette_rl.core.agent_config import NonNegativeFloat
from vedette_rl.core.learning import Agent
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.layers import Array, Layers, MlpSizes


class Td3Config(ActorCriticConfig):
    """Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477; values of the authors' code)."""

    synonyms: ClassVar[Mapping[str, str]] = {
        "target_noise": "target_policy_noise policy_noise",
        "target_noise_clip": "noise_clip",
        "exploration_noise": "action_noise expl_noise",
    }

    name: Literal["td3"] = "td3"
    """the registry's name of the agent, or ``module:Name``."""
    policy_delay: PositiveInt = 2
    """optimization steps of the critics to one of the policy (2: section 5.2)."""
    target_update_interval: PositiveInt = 2
    """optimization steps between two updates of the target networks (2: algorithm 1)."""
    exploration_noise: NonNegativeFloat = 0.1
    """standard deviation of the noise on actors' actions, of actions scaled to [-1, 1] (0.1:
    section 6.1)."""
    target_noise: NonNegativeFloat = 0.2
    """that of the noise on the target's action (0.2: section 6.1)."""
    target_noise_clip: NonNegativeFloat = 0.5
    """bound of that noise (0.5: section 6.1)."""


class DeterministicLayers(Layers):
    """mu(s): the action, in [-1, 1].

    Args:
        config: its `policy_architecture`.
        sizes: features, and of the hidden layers.
        dimensions: D.
    """

    def __init__(self, config: Td3Config, sizes: tuple[int, ...], dimensions: int) -> None:
        architecture = config.policy_architecture
        self.mlps = {"policy": MlpSizes((*sizes, dimensions), architecture=architecture)}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """``(B, D)``."""
        return xp.tanh(net.policy(x_BF))


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
        }

    def greedy(
        self, xp: Any, network: Callable[..., Array], obs: Any, *constants: Array
    ) -> tuple[Array, ...]:
        """Actions ``(E, *shape)`` within the environment's bounds."""
        return (to_bounds(network(obs), *constants).reshape(-1, *self._shape),)

    def draw(self, output: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions ``(E, D)`` with noise."""
        noise_ED = self._rng.standard_normal(output.shape, np.float32)
        scale = np.float32(self._config.exploration_noise)
        return (output + scale * noise_ED).clip(-1.0, 1.0)


def build_agent(config: Td3Config, spaces: Spaces, *, device: str, seed: int) -> Agent:
    """The half that learns."""
    from vedette_rl.agents.td3.agent import Td3Agent

    return Td3Agent(config, spaces, device=device, seed=seed)


KIND = network_agent(Td3Config, build_agent, Td3Policy, DeterministicLayers, BoxActions)
