"""Agents of a user's own: what their configuration calls so is theirs."""

import sys
from pathlib import Path

import pytest
from starts import lines_of_start  # of tests/support

from vedette_services.config.loading import load_config

MODULE = """
from dataclasses import replace
from typing import Any
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.policy import KIND

class Config(DqnConfig):
    name: str = "own_words:Mine"
    network: Any = None

def check(config, spaces):
    pass

Mine = replace(KIND, name="own_words:Mine", config=Config, check=check)
"""


@pytest.mark.parametrize("network", ["", "agent.network=3"])
def test_a_network_that_is_no_name_is_the_agents_own_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    (tmp_path / "own_words.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_words", raising=False)
    settings = [network] if network else []
    config = load_config(
        env="CartPole-v1", agent="own_words:Mine", settings=settings, environment={}
    ).config
    lines_of_start(config, tmp_path / "run")
