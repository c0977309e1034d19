"""Contracts for custom agents, policies, step processors, replay buffers and environments.

They are mixins of tests, and need no pytest to be imported."""

import sys

if (pytest := sys.modules.get("pytest")) is not None:  # a failing assertion shows what came
    pytest.register_assert_rewrite(
        "vedette_rl.testing.agents",
        "vedette_rl.testing.block_agents",
        "vedette_rl.testing.contracts",
        "vedette_rl.testing.recurrent_agents",
        "vedette_rl.testing.recurrent_policies",
    )

from vedette_rl.testing.agents import AgentContract
from vedette_rl.testing.block_agents import BlockAgentContract, RecurrentBlockAgentContract
from vedette_rl.testing.contracts import PolicyContract, ReplayBufferContract, StepProcessorContract
from vedette_rl.testing.environments import EnvironmentReport, check_environment
from vedette_rl.testing.inputs import (
    BitFlip,
    ScriptedEnv,
    Synthetic,
    VisualReach,
    sampled_block,
    sampled_obs,
    sampled_sequences,
    sampled_transitions,
)
from vedette_rl.testing.memory_tasks import PartOfObservation, RepeatFirst
from vedette_rl.testing.recurrent_agents import RecurrentAgentContract

__all__ = [
    "AgentContract",
    "BitFlip",
    "BlockAgentContract",
    "EnvironmentReport",
    "PartOfObservation",
    "PolicyContract",
    "RecurrentAgentContract",
    "RecurrentBlockAgentContract",
    "RepeatFirst",
    "ReplayBufferContract",
    "ScriptedEnv",
    "StepProcessorContract",
    "Synthetic",
    "VisualReach",
    "check_environment",
    "sampled_block",
    "sampled_obs",
    "sampled_sequences",
    "sampled_transitions",
]
