"""The half of SAC that acts, on flat observations. No torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import BoxActions
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.model_arrays import check_arrays
from vedette_rl.networks.numpy_mlp import NumpyMlp, mlp_shapes
from vedette_rl.networks.observation import count_features, flat_parts, flatten_observation


class SacPolicy:
    """A `Policy`: draws from the squashed Gaussian while it explores, its mode's image otherwise.

    `ranks` are not used: the policy's own noise explores.
    """

    def __init__(
        self, config: SacConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._actions = BoxActions.from_space(config.name, spaces.action)
        self._parts = flat_parts(config.name, spaces.observation)
        sizes = (count_features(self._parts), *config.hidden_sizes, 2 * self._actions.dimensions)
        self._shapes = mlp_shapes("policy", sizes)
        self._draw = ActionDraw(config, self._actions, seed)
        self._policy: NumpyMlp | None = None
        self._version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on.

        Raises:
            ModelMismatchError: it is the model of another network; the old one stays.
        """
        check_arrays(self._shapes, model.arrays)
        self._policy, self._version = NumpyMlp(model.arrays, "policy"), model.version

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.float32]:
        """Actions ``(E, *shape)`` within the environment's bounds."""
        if self._policy is None:
            check_arrays(self._shapes, {})  # raises: it has no model to act on
            raise AssertionError("a network has arrays")
        return self._draw(
            self._policy(flatten_observation(self._parts, obs)),
            explore=explore,
            version=self._version,
        )


class ActionDraw:
    """From the policy network's output to actions."""

    def __init__(self, config: SacConfig, actions: BoxActions, seed: int) -> None:
        self._config = config
        self._actions = actions
        self._rng = np.random.default_rng(seed)

    def __call__(
        self, gaussian_E2D: NDArray[np.float32], *, explore: bool, version: int
    ) -> NDArray[np.float32]:
        """Actions ``(E, *shape)`` for means and log standard deviations side by side."""
        mean_ED, log_std_ED = np.split(gaussian_E2D, 2, axis=1)
        if not explore:
            return self._actions.from_unit(np.tanh(mean_ED))
        if version == 0 and self._config.uniform_warmup:
            return self._actions.from_unit(
                self._rng.uniform(-1.0, 1.0, mean_ED.shape).astype(np.float32)
            )
        std_ED = np.exp(np.clip(log_std_ED, self._config.log_std_min, self._config.log_std_max))
        noise_ED = self._rng.standard_normal(mean_ED.shape, np.float32)
        return self._actions.from_unit(np.tanh(mean_ED + std_ED * noise_ED))
