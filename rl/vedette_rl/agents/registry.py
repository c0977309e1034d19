"""Agents by name. Importing this loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.config import AgentConfig
from vedette_rl.core.acting import Policy
from vedette_rl.core.learning import Agent, ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import UnknownAgentError, UnknownNameError
from vedette_rl.import_by_name import load_named

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.agents.greedy_network import GreedyNetwork
from typing import TYPE_CHECKING

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.networks.observation import acts_by_torch, check_network
from vedette_rl.networks.threads import act_on_one_thread

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.agents.greedy_network import GreedyNetwork
from typing import TYPE_CHECKING

from vedette_rl.agents.iqn.config import IqnConfig

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.agents.greedy_network import GreedyNetwork
from typing import TYPE_CHECKING

from vedette_rl.agents.actions import BoxActions
from vedette_rl.agents.sac.config import SacConfig

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.agents.greedy_network import GreedyNetwork


class SacType:
    """SAC in the registry."""

    name = "sac"
    config = SacConfig

    def check(self, config: SacConfig, spaces: Spaces) -> None:
        """Refuse spaces that SAC cannot take."""
        BoxActions.of(self.name, spaces.action)
        check_network(self.name, config.network, spaces.observation)

    def build_agent(self, config: SacConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
        """The agent, on a torch device."""
        from vedette_rl.agents.sac.agent import SacAgent

        self.check(config, spaces)
        return SacAgent(config, spaces, device=device, seed=seed)

    def build_policy(
        self, config: SacConfig, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The policy: in numpy on flat observations, in torch on images and behind own encoders."""
        self.check(config, spaces)
        if acts_by_torch(self.name, config.network, spaces.observation):
            act_on_one_thread()
            from vedette_rl.agents.sac.torch_policy import SacTorchPolicy

            return SacTorchPolicy(config, spaces, positions=positions, seed=seed)
        from vedette_rl.agents.sac.policy import SacPolicy

        return SacPolicy(config, spaces, positions=positions, seed=seed)

    def build_greedy(self, config: SacConfig, spaces: Spaces, model: ModelInfo) -> GreedyNetwork:
        """The greedy policy in torch, for exporters."""
        from vedette_rl.agents.sac.torch_policy import GreedyGaussian

        return GreedyGaussian(config, spaces, model)


class IqnType:
    """IQN in the registry."""

    name = "iqn"
    config = IqnConfig

    def check(self, config: IqnConfig, spaces: Spaces) -> None:
        """Refuse spaces that IQN cannot take."""
        DiscreteActions.of(self.name, spaces.action)
        check_network(self.name, config.network, spaces.observation)

    def build_agent(self, config: IqnConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
        """The agent, on a torch device."""
        from vedette_rl.agents.iqn.agent import IqnAgent

        self.check(config, spaces)
        return IqnAgent(config, spaces, device=device, seed=seed)

    def build_policy(
        self, config: IqnConfig, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The policy: in numpy on flat observations, in torch on images and behind own encoders."""
        self.check(config, spaces)
        if acts_by_torch(self.name, config.network, spaces.observation):
            act_on_one_thread()
            from vedette_rl.agents.iqn.torch_policy import IqnTorchPolicy

            return IqnTorchPolicy(config, spaces, positions=positions, seed=seed)
        from vedette_rl.agents.iqn.policy import IqnPolicy

        return IqnPolicy(config, spaces, positions=positions, seed=seed)

    def build_greedy(self, config: IqnConfig, spaces: Spaces, model: ModelInfo) -> GreedyNetwork:
        """The greedy policy in torch, for exporters."""
        from vedette_rl.agents.iqn.torch_policy import GreedyQuantiles

        return GreedyQuantiles(config, spaces, model)


class DqnType:
    """DQN in the registry."""

    name = "dqn"
    config = DqnConfig

    def check(self, config: DqnConfig, spaces: Spaces) -> None:
        """Refuse spaces that DQN cannot take."""
        DiscreteActions.of(self.name, spaces.action)
        check_network(self.name, config.network, spaces.observation)

    def build_agent(self, config: DqnConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
        """The agent, on a torch device."""
        from vedette_rl.agents.dqn.agent import DqnAgent

        self.check(config, spaces)
        return DqnAgent(config, spaces, device=device, seed=seed)

    def build_policy(
        self, config: DqnConfig, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The policy: in numpy on flat observations, in torch on images and by own networks."""
        self.check(config, spaces)
        if acts_by_torch(self.name, config.network, spaces.observation):
            act_on_one_thread()
            from vedette_rl.agents.dqn.torch_policy import DqnTorchPolicy

            return DqnTorchPolicy(config, spaces, positions=positions, seed=seed)
        from vedette_rl.agents.dqn.policy import DqnPolicy

        return DqnPolicy(config, spaces, positions=positions, seed=seed)

    def build_greedy(self, config: DqnConfig, spaces: Spaces, model: ModelInfo) -> GreedyNetwork:
        """The greedy policy in torch, for exporters."""
        from vedette_rl.agents.dqn.torch_policy import GreedyQ

        return GreedyQ(config, spaces, model)


C = TypeVar("C", bound=AgentConfig, contravariant=True)


@runtime_checkable
class AgentType(Protocol[C]):
    """A kind of agent: how its two halves, the agent and its policy, are built.

    ::

        kind = agent_type("dqn")
        config = kind.config(learning_rate=1e-3)
        kind.check(config, spaces)
        agent = kind.build_agent(config, spaces, device="cpu", seed=0)            # the learner
        policy = kind.build_policy(config, spaces, positions=np.array([0.5]), seed=1)  # an actor
        policy.sync_model(agent.model_info())
    """

    @property
    def name(self) -> str:
        """What configurations call it."""
        ...

    @property
    def config(self) -> type[Any]:  # Any: a type cannot be contravariant in C and returned too
        """The class of its configuration, an `AgentConfig`."""
        ...

    def check(self, config: C, spaces: Spaces) -> None:
        """Refuse what the agent cannot take, without importing torch.

        Raises:
            UnsupportedSpaceError, NoImageError: names the space and what the agent takes.
        """
        ...

    def build_agent(self, config: C, spaces: Spaces, *, device: str, seed: int) -> Agent:
        """The half that learns, on a torch device."""
        ...

    def build_policy(
        self, config: C, spaces: Spaces, *, positions: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The half that acts, for a row of E environments.

        Args:
            config: as the agent's.
            spaces: as the agent's.
            positions: ``(E,)`` in [0, 1], where each environment stands among all that explore
                (`vedette_rl.agents.exploration.ladder_positions`).
            seed: of the exploration; each actor's own.
        """
        ...


@runtime_checkable
class BuildsGreedy(Protocol[C]):
    """What an `AgentType` may be besides: one whose greedy policy can be exported as a network."""

    def build_greedy(self, config: C, spaces: Spaces, model: ModelInfo) -> GreedyNetwork:
        """The greedy policy in torch, on this model."""
        ...


BUILT_IN: dict[str, AgentType[Any]] = {
    kind.name: kind for kind in (DqnType(), IqnType(), SacType())
}
"""The agents that come with Vedette. Any: each has a configuration of its own class."""


def agent_type(name: str) -> AgentType[Any]:
    """The agent of this name. ``module:Name`` imports the module: the caller decides whether to.

    Raises:
        UnknownAgentError: nothing of this name is known, or what is found is no `AgentType`.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UnknownAgentError(name, list(BUILT_IN))
    try:
        found = load_named("agent.name", name)
    except UnknownNameError as error:
        raise UnknownAgentError(name, list(BUILT_IN), error.why) from error
    kind = found() if isinstance(found, type) else found
    if not isinstance(kind, AgentType):
        raise UnknownAgentError(name, list(BUILT_IN), "it is no AgentType")
    return kind
