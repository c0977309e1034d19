"""Builds the halves of agents that act by a network. No torch.

One description of the forward pass (`vedette_rl.networks.layers.Layers`) and one policy class serve
acting in numpy (flat observations), acting in torch (images and custom networks) and the exported
graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeGuard, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import BoxActions, DiscreteActions
from vedette_rl.agents.kind import AgentKind, BuildAgent, DeclareColumns
from vedette_rl.agents.network_policy import NetworkPolicy
from vedette_rl.agents.recurrent_policy import RecurrentPolicy, memory_column
from vedette_rl.core.acting import Policy
from vedette_rl.core.columns import RowColumn
from vedette_rl.core.learning import Agent, ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.import_by_name import import_by_name, is_import_name
from vedette_rl.networks.acting_network import (
    ActingNetwork,
    BoundNetwork,
    RecurrentActingNetwork,
)
from vedette_rl.networks.config import MemoryConfig, NetworkConfig
from vedette_rl.networks.core import GruSizes
from vedette_rl.networks.layers import (
    LayersFactory,
    describe_network,
    layer_sizes,
    normalized_columns,
)
from vedette_rl.networks.numpy_nets import (
    NormalizedNetwork,
    NumpyNetwork,
    RecurrentNormalizedNetwork,
    RecurrentNumpyNetwork,
)
from vedette_rl.networks.observation import (
    BuiltInInput,
    CustomInput,
    NetworkInput,
    choose_input,
    count_features,
)
from vedette_rl.networks.threads import load_torch_single_threaded

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.agents.policy_graph import PolicyGraph

C = TypeVar("C", bound=NetworkConfig)


class NetworkPolicyClass(Protocol):
    """Makes a `NetworkPolicy` for a vector of environments; see `AgentKind.build_policy`."""

    def __call__(
        self,
        network: ActingNetwork,
        config: Any,  # of the agent's own class
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> NetworkPolicy: ...

    def describe(self, config: Any, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`."""
        ...


@dataclass(frozen=True)
class ActingHead:
    """What acts in a kind of action space.

    Args:
        policy: acts by the network's output.
        layers: describes the network that acts.
        actions: the actions that it takes.
    """

    policy: NetworkPolicyClass
    layers: LayersFactory
    actions: type[DiscreteActions] | type[BoxActions]


def memory_columns(config: NetworkConfig, spaces: Spaces) -> Sequence[RowColumn]:
    """The column of what an actor remembers, where the network has a recurrent core."""
    if not isinstance(config, MemoryConfig) or not config.core_size:
        return ()
    return (memory_column(config.core_size, config.memory_dtype),)


@dataclass(frozen=True)
class _Builder(Generic[C]):
    """Builds the halves of an agent that acts by a network; see `network_agent`."""

    agent: BuildAgent[C]
    head_of: Callable[[gym.Space[Any]], ActingHead]

    def check(self, config: C, spaces: Spaces) -> None:
        self._action_size(config, spaces)
        if is_import_name(config.network):
            load_torch_single_threaded()  # the user's module imports torch
            import_by_name("agent.network", config.network)
        else:
            choose_input(config, spaces.observation)

    def build_agent(self, config: C, spaces: Spaces, *, device: str, seed: int) -> Agent:
        self.check(config, spaces)
        return self.agent(config, spaces, device=device, seed=seed)

    def build_policy(
        self,
        config: C,
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
        images_in_numpy: bool = False,
    ) -> Policy:
        self.check(config, spaces)
        head = self.head_of(spaces.action)
        of_network = (
            config,
            spaces.observation,
            head.layers,
            self._action_size(config, spaces),
            images_in_numpy,
        )
        if not config.core_size:
            network = acting_network(*of_network)
            return head.policy(network, config, spaces, ranks=ranks, seed=seed)
        bound = BoundNetwork(recurrent_acting_network(*of_network))
        policy = head.policy(bound, config, spaces, ranks=ranks, seed=seed)
        return RecurrentPolicy(policy, bound)

    def build_graph(self, config: C, spaces: Spaces, model: ModelInfo) -> PolicyGraph:
        from vedette_rl.agents.policy_graph import PolicyGraph, RecurrentPolicyGraph
        from vedette_rl.networks.torch_network import (
            NormalizedModule,
            NormalizedRecurrentModule,
            RecurrentNetwork,
            RecurrentTorchActingNetwork,
            TorchActingNetwork,
            build_network,
        )

        observation = spaces.observation
        size = self._action_size(config, spaces)
        head = self.head_of(spaces.action)
        network = build_network(config, observation, head.layers, size)
        columns = normalized_columns(config, observation)
        acting: ActingNetwork
        if isinstance(network, RecurrentNetwork):
            acting = BoundNetwork(
                _remembering(RecurrentTorchActingNetwork(network), config, observation)
            )
        else:
            acting = _normalized(config, observation, TorchActingNetwork(network))
        policy = head.policy(acting, config, spaces, ranks=np.zeros(1), seed=0)
        policy.sync_model(model)
        if isinstance(network, RecurrentNetwork):
            normalized = NormalizedRecurrentModule(network, columns, model.arrays)
            return RecurrentPolicyGraph(policy, normalized, observation)
        return PolicyGraph(policy, NormalizedModule(network, columns, model.arrays), observation)

    def describe(self, config: C, spaces: Spaces) -> dict[str, Any] | None:
        observation = spaces.observation
        seen = choose_input(config, observation)
        head = self.head_of(spaces.action)
        described = head.policy.describe(config, spaces)
        if described is None or isinstance(seen, CustomInput):
            return None
        features = count_features(seen)
        sizes = layer_sizes(config, seen, features)
        layers = head.layers(config, sizes, self._action_size(config, spaces))
        normalized = normalized_columns(config, observation)
        core = GruSizes(features, config.core_size) if config.core_size else None
        return {**described, **describe_network(layers, seen, observation, normalized, core)}

    def _action_size(self, config: C, spaces: Spaces) -> int:
        return self.head_of(spaces.action).actions.from_space(config.name, spaces.action).size


def network_agent(
    config: type[C],
    build_agent: BuildAgent[C],
    head: ActingHead | Callable[[gym.Space[Any]], ActingHead],
    *,
    columns: DeclareColumns[C] = memory_columns,
) -> AgentKind[C]:
    """An agent that acts by a network.

    Args:
        config: the class of its configuration.
        build_agent: builds the half that learns; it imports torch when it is called.
        head: what acts, or a function of the space of actions.
        columns: see `DeclareColumns`.
    """
    builder = _Builder(build_agent, (lambda _: head) if isinstance(head, ActingHead) else head)
    return AgentKind(
        config.model_fields["name"].default,
        config,
        builder.build_agent,
        builder.build_policy,
        builder.check,
        partial(builder.build_policy, images_in_numpy=True),
        builder.build_graph,
        columns,
        describe=builder.describe,
    )


def acting_network(
    config: NetworkConfig,
    observation: gym.Space[Any],
    layers: LayersFactory,
    size: int,
    images_in_numpy: bool,
) -> ActingNetwork:
    """The network that acts: in torch on images and for custom networks, else in numpy."""
    seen = choose_input(config, observation)
    if _acts_in_numpy(seen, images_in_numpy):
        return _normalized(config, observation, NumpyNetwork(config, seen, layers, size))
    load_torch_single_threaded()
    from vedette_rl.networks.torch_network import TorchActingNetwork, build_network

    network = TorchActingNetwork(build_network(config, observation, layers, size))
    return _normalized(config, observation, network)


def recurrent_acting_network(
    config: NetworkConfig,
    observation: gym.Space[Any],
    layers: LayersFactory,
    size: int,
    images_in_numpy: bool,
) -> RecurrentActingNetwork:
    """The network with a recurrent core that acts; as `acting_network`."""
    seen = choose_input(config, observation)
    network: RecurrentActingNetwork
    if _acts_in_numpy(seen, images_in_numpy):
        network = RecurrentNumpyNetwork(config, seen, layers, size)
    else:
        load_torch_single_threaded()
        from vedette_rl.networks.torch_network import (
            RecurrentNetwork,
            RecurrentTorchActingNetwork,
        )

        network = RecurrentTorchActingNetwork(RecurrentNetwork(config, seen, layers, size))
    return _remembering(network, config, observation)


def _remembering(
    network: RecurrentActingNetwork, config: NetworkConfig, observation: gym.Space[Any]
) -> RecurrentActingNetwork:
    columns = normalized_columns(config, observation)
    return RecurrentNormalizedNetwork(network, columns) if columns.columns else network


def _acts_in_numpy(seen: NetworkInput, images_in_numpy: bool) -> TypeGuard[BuiltInInput]:
    return isinstance(seen, tuple) or (images_in_numpy and not isinstance(seen, CustomInput))


def _normalized(
    config: NetworkConfig, observation: gym.Space[Any], network: ActingNetwork
) -> ActingNetwork:
    columns = normalized_columns(config, observation)
    return NormalizedNetwork(network, columns) if columns.columns else network
