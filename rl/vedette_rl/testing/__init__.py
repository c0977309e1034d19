"""Contracts for your own agents, policies, step processors, replay buffers and environments.

They are mixins of tests, and need no pytest to be imported."""

from vedette_rl.testing.agents import AgentContract
from vedette_rl.testing.environments import EnvironmentReport, check_environment
from vedette_rl.testing.policies import PolicyContract
from vedette_rl.testing.replay_buffers import ReplayBufferContract
from vedette_rl.testing.scripted import ScriptedEnv
from vedette_rl.testing.step_processors import StepProcessorContract
from vedette_rl.testing.transitions import sampled_obs, sampled_transitions

__all__ = [
    "AgentContract",
    "EnvironmentReport",
    "PolicyContract",
    "ReplayBufferContract",
    "ScriptedEnv",
    "StepProcessorContract",
    "check_environment",
    "sampled_obs",
    "sampled_transitions",
]
