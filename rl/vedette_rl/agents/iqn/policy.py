"""The half of IQN that acts, on flat observations. No torch.

Shapes: E environments, K quantile fractions, A actions, F features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_values import ActionChooser
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.model_arrays import Shapes, check_arrays
from vedette_rl.networks.numpy_mlp import NumpyMlp, mlp_shapes
from vedette_rl.networks.observation import count_features, flat_parts, flatten_observation


class IqnPolicy:
    """A `Policy`: risk-neutral, on the mean of K samples of the return (section 3.2).

    While it explores, the K quantile fractions are drawn anew at every step, for the whole row;
    otherwise they are the midpoints of K equal parts, so that a greedy action is deterministic.
    """

    def __init__(
        self, config: IqnConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._choice = ActionChooser(config, spaces.action, ranks, seed)
        self._parts = flat_parts(config.name, spaces.observation)
        self._fractions = ActingFractions(config, seed)
        self._shapes = quantile_shapes(config, count_features(self._parts), self._choice.actions.n)
        self._z: NumpyQuantiles | None = None
        self._version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on.

        Raises:
            ModelMismatchError: it is the model of another network; the old one stays.
        """
        check_arrays(self._shapes, model.arrays)
        self._z, self._version = NumpyQuantiles(model), model.version

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.int64]:
        """Actions ``(E,)``."""
        q_EA = self._values(obs, self._fractions(explore=explore))
        return self._choice.choose(q_EA, self._version, explore=explore)

    def td_errors(self, transitions: Columns) -> NDArray[np.float32]:
        """|TD errors| ``(B,)`` of the distributions' means, by the model that it acts on."""
        taus_K = self._fractions(explore=False)
        return self._choice.td_errors(lambda obs: self._values(obs, taus_K), transitions)

    def _values(self, obs: Columns, taus_K: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._z is None:
            check_arrays(self._shapes, {})  # raises: it has no model to act on
            raise AssertionError("a network has arrays")
        q_EA: NDArray[np.float32] = self._z(flatten_observation(self._parts, obs), taus_K).mean(
            axis=1
        )
        return q_EA


class ActingFractions:
    """The K quantile fractions that an action is valued at."""

    def __init__(self, config: IqnConfig, seed: int) -> None:
        # its own stream: exploration draws from default_rng(seed)
        self._rng = np.random.default_rng([seed, 1])
        k = config.n_action_quantiles
        self._midpoints = ((np.arange(k) + 0.5) / k).astype(np.float32)

    def __call__(self, *, explore: bool) -> NDArray[np.float32]:
        """``(K,)`` in [0, 1)."""
        if not explore:
            return self._midpoints
        return self._rng.random(len(self._midpoints), np.float32)


def quantile_shapes(config: IqnConfig, width: int, actions: int) -> Shapes:
    """The arrays of a `QuantileNetwork` on a flat observation of this width."""
    sizes = (width, *config.hidden_sizes)
    return (
        mlp_shapes("psi", sizes[:-1])
        | mlp_shapes("phi", (config.n_cosines, sizes[-2]))
        | mlp_shapes("f", (*sizes[-2:], actions))
    )


class NumpyQuantiles:
    """`QuantileNetwork` in numpy, on a flat observation, the same fractions for every row."""

    def __init__(self, model: ModelInfo) -> None:
        self._psi = NumpyMlp(model.arrays, "psi", relu_last=True)
        self._phi = NumpyMlp(model.arrays, "phi", relu_last=True)
        self._f = NumpyMlp(model.arrays, "f")
        n_cosines = model.arrays["phi.0.weight"].shape[1]
        self._cosines = (np.pi * np.arange(n_cosines)).astype(np.float32)

    def __call__(
        self, x_EF: NDArray[np.float32], taus_K: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """``(E, K, A)``."""
        phi_KF = self._phi(np.cos(taus_K[:, np.newaxis] * self._cosines))
        merged_EKF = self._psi(x_EF)[:, np.newaxis] * phi_KF
        rows, k, width = merged_EKF.shape
        return self._f(merged_EKF.reshape(rows * k, width)).reshape(rows, k, -1)
