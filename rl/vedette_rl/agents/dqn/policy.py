"""The half of DQN that acts, on flat observations. No torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_values import ActionChooser
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.model_arrays import Shapes, check_arrays
from vedette_rl.networks.numpy_mlp import NumpyMlp, mlp_shapes
from vedette_rl.networks.observation import count_features, flat_parts, flatten_observation


class DqnPolicy:
    """A `Policy`: epsilon-greedy or softmax on Q while it explores, greedy otherwise."""

    def __init__(
        self, config: DqnConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._choice = ActionChooser(config, spaces.action, ranks, seed)
        self._parts = flat_parts(config.name, spaces.observation)
        self._shapes = q_shapes(config, count_features(self._parts), self._choice.actions.n)
        self._q: NumpyQ | None = None
        self._version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on.

        Raises:
            ModelMismatchError: it is the model of another network; the old one stays.
        """
        check_arrays(self._shapes, model.arrays)
        self._q, self._version = NumpyQ(model), model.version

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.int64]:
        """Actions ``(E,)``."""
        q_EA = self._values(obs)
        return self._choice.choose(q_EA, self._version, explore=explore)

    def td_errors(self, transitions: Columns) -> NDArray[np.float32]:
        """|TD errors| ``(B,)`` of transitions, by the model that it acts on."""
        return self._choice.td_errors(self._values, transitions)

    def _values(self, obs: Columns) -> NDArray[np.float32]:
        if self._q is None:
            check_arrays(self._shapes, {})  # raises: it has no model to act on
            raise AssertionError("a network has arrays")
        return self._q(flatten_observation(self._parts, obs))


def q_shapes(config: DqnConfig, width: int, actions: int) -> Shapes:
    """The arrays of a `QNetwork` on a flat observation of this width."""
    sizes = (width, *config.hidden_sizes)
    if not config.dueling:
        return mlp_shapes("q", (*sizes, actions))
    return (
        mlp_shapes("torso", sizes[:-1])
        | mlp_shapes("value", (*sizes[-2:], 1))
        | mlp_shapes("advantage", (*sizes[-2:], actions))
    )


class NumpyQ:
    """`QNetwork` in numpy, on a flat observation."""

    def __init__(self, model: ModelInfo) -> None:
        self._q = NumpyMlp(model.arrays, "q")
        self._dueling = "value.0.weight" in model.arrays
        self._torso = NumpyMlp(model.arrays, "torso", relu_last=True)
        self._value = NumpyMlp(model.arrays, "value")
        self._advantage = NumpyMlp(model.arrays, "advantage")

    def __call__(self, x_EF: NDArray[np.float32]) -> NDArray[np.float32]:
        """Action values ``(E, A)``."""
        if not self._dueling:
            return self._q(x_EF)
        x_EF = self._torso(x_EF)
        advantage_EA = self._advantage(x_EF)
        advantage_EA -= advantage_EA.mean(axis=1, keepdims=True)
        advantage_EA += self._value(x_EF)
        return advantage_EA
