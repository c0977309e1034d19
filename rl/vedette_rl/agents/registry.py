"""Agents by name. Importing this loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.config import AgentConfig
from vedette_rl.agents.dqn.agent_type import DqnType
from vedette_rl.agents.iqn.agent_type import IqnType
from vedette_rl.agents.sac.agent_type import SacType
from vedette_rl.core.acting import Policy
from vedette_rl.core.learning import Agent, ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import UnknownAgentError, UnknownNameError
from vedette_rl.named import import_by_name

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.networks.greedy import GreedyNetwork

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
        self, config: C, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        """The half that acts, for a row of E environments.

        Args:
            config: as the agent's.
            spaces: as the agent's.
            positions: ``(E,)`` in [0, 1], where each environment stands among all that explore
                (`vedette_rl.exploration.exploration_ranks`).
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
        found = import_by_name("agent.name", name)
    except UnknownNameError as error:
        raise UnknownAgentError(name, list(BUILT_IN), error.why) from error
    kind = found() if isinstance(found, type) else found
    if not isinstance(kind, AgentType):
        raise UnknownAgentError(name, list(BUILT_IN), "it is no AgentType")
    return kind
