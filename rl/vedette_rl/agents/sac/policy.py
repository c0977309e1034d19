"""The half of SAC that acts. No torch. Shapes: E environments, D action dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_noise import describe_color
from vedette_rl.agents.actions import BoxActions, to_bounds
from vedette_rl.agents.network_agent import ActingHead, network_agent
from vedette_rl.agents.network_policy import BoxPolicy
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.sac.network import GaussianLayers
from vedette_rl.core.learning import Agent
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.layers import Array


class SacPolicy(BoxPolicy[SacConfig]):
    """A `Policy`: draws from the squashed Gaussian while it explores, else takes its mode."""

    @classmethod
    def describe(cls, config: SacConfig, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`."""
        return {
            "head": "gaussian",
            "actions": BoxActions.from_space(config.name, spaces.action).describe(),
            "log_std": [config.log_std_min, config.log_std_max],
            "uniform_warmup": config.uniform_warmup,
            **describe_color(config),
        }

    def greedy(
        self, xp: Any, network: Callable[..., Array], obs: Any, *constants: Array
    ) -> tuple[Array, ...]:
        """Actions ``(E, *shape)`` within the environment's bounds."""
        mean_ED = network(obs)[:, : self._size]
        return (to_bounds(xp.tanh(mean_ED), *constants).reshape(-1, *self._shape),)

    def draw(self, output: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions ``(E, D)`` drawn from the policy."""
        mean_ED, log_std_ED = np.split(output, 2, axis=1)
        std_ED = np.exp(np.clip(log_std_ED, self._config.log_std_min, self._config.log_std_max))
        noise_ED = self._noise.draw(len(mean_ED))
        unit_ED: NDArray[np.float32] = np.tanh(mean_ED + std_ED * noise_ED)
        return unit_ED


def build_agent(config: SacConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
    """The half that learns."""
    if config.core_size:
        from vedette_rl.agents.sac.recurrent import RecurrentSacAgent

        return RecurrentSacAgent(config, spaces, device=device, seed=seed)
    from vedette_rl.agents.sac.agent import SacAgent

    return SacAgent(config, spaces, device=device, seed=seed)


KIND = network_agent(SacConfig, build_agent, ActingHead(SacPolicy, GaussianLayers, BoxActions))
