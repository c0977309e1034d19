"""A kind of agent: its name, its configuration, and the functions that build its halves. No torch.

::

    kind = agent_kind("dqn")
    config = kind.config(learning_rate=1e-3)
    kind.check(config, spaces)
    agent = kind.build_agent(config, spaces, device="cpu", seed=0)             # the learner
    policy = kind.build_policy(config, spaces, ranks=np.array([0.5]), seed=1)  # an actor
    policy.sync_model(agent.model_info())
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.acting import Policy
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.core.columns import RowColumn
from vedette_rl.core.learning import Agent, ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import RlError

if TYPE_CHECKING:  # it imports torch
    from vedette_rl.agents.policy_graph import PolicyGraph

C = TypeVar("C", bound=AgentConfig)
C_in = TypeVar("C_in", bound=AgentConfig, contravariant=True)


class BuildAgent(Protocol[C_in]):
    """Builds the half that learns, on a torch device."""

    def __call__(self, config: C_in, spaces: Spaces, *, device: str, seed: int) -> Agent: ...


class BuildPolicy(Protocol[C_in]):
    """Builds the half that acts, for a vector of E environments.

    Args:
        config, spaces: the agent's configuration and spaces.
        ranks: ``(E,)`` in [0, 1], each environment's exploration rank among all that explore
            (`vedette_rl.agents.exploration.exploration_ranks`).
        seed: the seed of the exploration; each actor has its own.
    """

    def __call__(
        self, config: C_in, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> Policy: ...


class BuildGraph(Protocol[C_in]):
    """Builds the greedy policy on a model as one torch module, which exporters trace."""

    def __call__(self, config: C_in, spaces: Spaces, model: ModelInfo) -> PolicyGraph: ...


class Check(Protocol[C_in]):
    """Refuses spaces that the agent cannot take, without building anything.

    Raises:
        UnsupportedSpaceError, NoImageError: names the space and what the agent takes.
    """

    def __call__(self, config: C_in, spaces: Spaces) -> None: ...


class DeclareColumns(Protocol[C_in]):
    """Declares the columns that this agent's policy adds to transitions
    (`vedette_rl.core.ColumnPolicy`), or that it expects of a step processor or environment."""

    def __call__(self, config: C_in, spaces: Spaces) -> Sequence[RowColumn]: ...


def _no_columns(config: AgentConfig, spaces: Spaces) -> Sequence[RowColumn]:
    """Declares no columns."""
    return ()


def _check_nothing(config: AgentConfig, spaces: Spaces) -> None:
    """Accepts all spaces."""


@dataclass(frozen=True)
class AgentKind(Generic[C]):
    """One kind of agent, as the registry and ``agent.name`` name it.

    Args:
        name: the name in configurations.
        config: the class of its configuration.
        build_agent: see `BuildAgent`.
        build_policy: see `BuildPolicy`.
        check: see `Check`; accepts all spaces by default.
        build_numpy_policy: as `build_policy`, and in numpy on images too, where an actor would use
            torch; None where there is no such form.
        build_graph: see `BuildGraph`; None where the policy cannot be exported as a graph.
        columns: see `DeclareColumns`; none by default.
        describe: describes acting for clients in other languages, as the wire's page says under
            "Acting"; None where that cannot be described.
        learns: False: it only acts, on the models of a custom training loop.
    """

    name: str
    config: type[C]
    build_agent: BuildAgent[C]
    build_policy: BuildPolicy[C]
    check: Check[C] = _check_nothing
    build_numpy_policy: BuildPolicy[C] | None = None
    build_graph: BuildGraph[C] | None = None
    columns: DeclareColumns[C] = _no_columns
    describe: Callable[[C, Spaces], dict[str, Any] | None] | None = None
    learns: bool = True

    def check_learns(self) -> None:
        """Refuse a kind that only acts where one is to learn.

        Raises:
            RlError: says what learns instead.
        """
        if not self.learns:
            raise _learns_nothing(self.name)


def _learns_nothing(name: str) -> RlError:
    return RlError(
        f"{name} is a policy, which acts and learns nothing: feed your own training loop with "
        "vedette.Replay, or name an AgentKind"
    )


class PolicyConfig(AgentConfig):
    """The configuration of a policy class, whose training loop is elsewhere."""

    env_steps_per_opt: ClassVar[float] = math.inf  # the limiter is off unless a rate is set


def policy_kind(name: str, policy: Callable[..., Policy]) -> AgentKind[PolicyConfig]:
    """Return the kind of a policy class, which is made as ``policy(spaces, seed=seed)``.

    A static method ``columns(spaces) -> Sequence[RowColumn]`` of the class declares the columns
    that its `acted_columns` fills, as those of step processors do.

    Args:
        name: ``module:Name`` of the class.
    """
    declare: Callable[[Spaces], Sequence[RowColumn]] | None = getattr(policy, "columns", None)

    def columns(config: PolicyConfig, spaces: Spaces) -> Sequence[RowColumn]:
        return () if declare is None else tuple(declare(spaces))

    def build_policy(
        config: PolicyConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
    ) -> Policy:
        return policy(spaces, seed=seed)

    def build_agent(config: PolicyConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
        raise _learns_nothing(name)

    return AgentKind(name, PolicyConfig, build_agent, build_policy, columns=columns, learns=False)
