"""Policies that act by a network: what those of all agents share. No torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_noise import make_action_noise
from vedette_rl.agents.actions import BoxActions, to_bounds
from vedette_rl.agents.config import ActorCriticConfig
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.acting_network import ActingNetwork
from vedette_rl.networks.layers import Array

B = TypeVar("B", bound=ActorCriticConfig)


class NetworkPolicy:
    """A `Policy` on a network; subclasses choose actions from the network's output.

    Args:
        network: the network, in numpy or in torch.

    Attributes:
        outputs: names of what `greedy` returns; ``action`` is the first.
        constants: arrays that `greedy` takes; an exported graph contains them.
    """

    outputs: ClassVar[tuple[str, ...]] = ("action",)
    constants: tuple[NDArray[Any], ...] = ()

    def __init__(self, network: ActingNetwork) -> None:
        self.network = network
        self.version = 0

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on.

        Raises:
            ModelMismatchError: it is the model of another network; the old one stays.
        """
        self.network.sync_model(model)
        self.version = model.version

    def act(
        self, obs: Columns, *, explore: bool, begins: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Actions ``(E, *shape)``. It has no memory: `begins` changes nothing."""
        if explore:
            return self.explore(obs)
        action: NDArray[Any] = self.greedy(np, self.network, obs, *self.constants)[0]
        return action

    @classmethod
    def describe(cls, config: Any, spaces: Spaces) -> dict[str, Any] | None:
        """Describe acting by the network's outputs, as the wire's page does; None: undescribed."""
        return None

    def explore(self, obs: Columns) -> NDArray[Any]:
        """Exploring actions ``(E, *shape)``."""
        raise NotImplementedError

    def greedy(
        self, xp: Any, network: Callable[..., Array], obs: Any, *constants: Array
    ) -> tuple[Array, ...]:
        """The outputs of greedy acting, with numpy or torch as `xp`."""
        raise NotImplementedError


class BoxPolicy(NetworkPolicy, Generic[B]):
    """A `NetworkPolicy` whose actions, in [-1, 1], are moved into the bounds of a Box.

    `ranks` are not used: every environment explores alike.
    """

    def __init__(
        self,
        network: ActingNetwork,
        config: B,
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> None:
        super().__init__(network)
        self._config = config
        actions = BoxActions.from_space(config.name, spaces.action)
        self._size = actions.size
        self._shape = actions.shape
        self.constants = actions.scaling
        self._rng = np.random.default_rng(seed)
        self._noise = make_action_noise(config, self._rng, self._size)

    def act(
        self, obs: Columns, *, explore: bool, begins: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Actions ``(E, *shape)``; where an episode begins, so does a sequence of noise."""
        if explore and begins is not None:
            self._noise.renew(begins)
        return super().act(obs, explore=explore)

    def explore(self, obs: Columns) -> NDArray[np.float32]:
        """Actions ``(E, *shape)`` as `draw` has them; uniform ones on an untrained model."""
        output = self.network(obs)
        if self.version == 0 and self._config.uniform_warmup:
            unit_ED = self._rng.uniform(-1.0, 1.0, (len(output), self._size)).astype(np.float32)
        else:
            unit_ED = self.draw(output)
        action: NDArray[np.float32] = to_bounds(unit_ED, *self.constants)
        return action.reshape(-1, *self._shape)

    def draw(self, output: NDArray[np.float32]) -> NDArray[np.float32]:
        """Exploring actions ``(E, D)`` in [-1, 1] of the network's output and `_noise`."""
        raise NotImplementedError
