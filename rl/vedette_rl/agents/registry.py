"""Agents by name. Importing this loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vedette_rl.agents.kind import AgentKind
from vedette_rl.errors import UnknownAgentError, UnknownNameError
from vedette_rl.import_by_name import import_by_name

_PACKAGES = ("dqn", "iqn", "sac")
"""Folders of this package, each with a ``policy.py`` that has the agent's `KIND`."""

BUILT_IN: dict[str, AgentKind[Any]] = {
    name: import_module(f"vedette_rl.agents.{name}.policy").KIND for name in _PACKAGES
}
"""The agents that come with Vedette. Any: each has a configuration of its own class."""


def agent_kind(name: str) -> AgentKind[Any]:
    """The agent of this name. ``module:Name`` imports the module: the caller decides whether to.

    Raises:
        UnknownAgentError: nothing of this name is known, or what is found is no `AgentKind`.
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
    if not isinstance(found, AgentKind):
        raise UnknownAgentError(name, list(BUILT_IN), "it is no AgentKind")
    return found
