"""The rules that learning depends on. Run `pytest` when the environment or the network changes."""

from functools import cache
from pathlib import Path

from vedette_rl.agents.registry import agent_kind
from vedette_rl.testing import AgentContract, check_environment
from vedette_services.config import load_config
from vedette_services.config.probing import probe_spaces

CONFIG = load_config(Path(__file__).with_name("mine.toml")).config


@cache
def spaces():
    return probe_spaces(CONFIG.env)  # once: it starts a process


def test_the_environment_keeps_the_rules():
    report = check_environment(CONFIG.env)
    assert report.episodes > 0
    assert not report.warnings


class TestAgentWithMyNetwork(AgentContract):
    discount = CONFIG.agent.discount

    def make_spaces(self):
        return spaces()

    def make_agent(self, seed):
        kind = agent_kind(CONFIG.agent.name)
        return kind.build_agent(CONFIG.agent, self.make_spaces(), device="cpu", seed=seed)
