"""The agents, and the parts that describe custom agents.

A name is loaded at its first use: those that need no torch load none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette_rl.import_by_name import lazy_names

if TYPE_CHECKING:
    from vedette_rl.agents.actions import BoxActions as BoxActions
    from vedette_rl.agents.actions import DiscreteActions as DiscreteActions
    from vedette_rl.agents.actions import to_bounds as to_bounds
    from vedette_rl.agents.captured_step import Due as Due
    from vedette_rl.agents.captured_step import SteppedAgent as SteppedAgent
    from vedette_rl.agents.captured_step import StepResult as StepResult
    from vedette_rl.agents.discounts import Discounts as Discounts
    from vedette_rl.agents.kind import AgentKind as AgentKind
    from vedette_rl.agents.losses import td_loss as td_loss
    from vedette_rl.agents.registry import agent_kind as agent_kind
    from vedette_rl.agents.value_agent import ValueAgent as ValueAgent
    from vedette_rl.core.agent_config import AgentConfig as AgentConfig
    from vedette_rl.networks.config import NetworkConfig as NetworkConfig
    from vedette_rl.settings.stored import IN_SAMPLES as IN_SAMPLES
    from vedette_rl.settings.stored import IN_WEIGHTS as IN_WEIGHTS

_MODULES = {
    "AgentConfig": "core.agent_config",
    "AgentKind": "agents.kind",
    "BoxActions": "agents.actions",
    "DiscreteActions": "agents.actions",
    "Discounts": "agents.discounts",
    "Due": "agents.captured_step",
    "IN_SAMPLES": "settings.stored",
    "IN_WEIGHTS": "settings.stored",
    "NetworkConfig": "networks.config",
    "StepResult": "agents.captured_step",
    "SteppedAgent": "agents.captured_step",
    "ValueAgent": "agents.value_agent",
    "agent_kind": "agents.registry",
    "td_loss": "agents.losses",
    "to_bounds": "agents.actions",
}
"""The module of each public name, below `vedette_rl`."""

__all__ = [*_MODULES]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
