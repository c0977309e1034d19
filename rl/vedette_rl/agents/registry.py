"""Agents by name. Importing this loads no torch."""

from __future__ import annotations

import difflib
from typing import Any

import vedette_rl.agents.appo.policy as appo
import vedette_rl.agents.dqn.policy as dqn
import vedette_rl.agents.iqn.policy as iqn
import vedette_rl.agents.sac.policy as sac
import vedette_rl.agents.td3.policy as td3
from vedette_rl.agents.kind import AgentKind, policy_kind
from vedette_rl.core.acting import Policy
from vedette_rl.core.protocols import missing_members
from vedette_rl.errors import UnknownAgentError, UnknownNameError
from vedette_rl.import_by_name import import_by_name
from vedette_rl.settings.words_of_others import INSTEAD_OF_ON_POLICY, ON_POLICY_AGENTS

BUILT_IN: dict[str, AgentKind[Any]] = {
    kind.name: kind for kind in (dqn.KIND, iqn.KIND, sac.KIND, td3.KIND, appo.KIND)
}
"""The agents that come with Vedette. Any: each has a configuration of its own class."""


def agent_kind(name: str) -> AgentKind[Any]:
    """The agent of this name. ``module:Name`` imports the module: the caller decides whether to.

    What it names is an `AgentKind`, or a `Policy` class, which acts for a training loop elsewhere.

    Raises:
        UnknownAgentError: nothing of this name is known, or the imported object is neither.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UnknownAgentError(name, list(BUILT_IN), _explain_unknown(name))
    try:
        named = import_by_name("agent.name", name)
    except UnknownNameError as error:
        raise UnknownAgentError(name, list(BUILT_IN), error.why) from error
    if isinstance(named, type) and not missing_members(named, Policy):
        return policy_kind(name, named)
    if not isinstance(named, AgentKind):
        raise UnknownAgentError(name, list(BUILT_IN), "it is no AgentKind, and no Policy class")
    return named


def _explain_unknown(name: str) -> str:
    """Say why there is no such agent, or which one is probably meant; "" if nothing is known."""
    if name.lower() in map(str.lower, ON_POLICY_AGENTS):
        return INSTEAD_OF_ON_POLICY
    near = difflib.get_close_matches(name.lower(), BUILT_IN, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""
