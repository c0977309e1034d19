"""Packages give short names to what is theirs, and the configuration spells them out."""

import sys
from pathlib import Path
from typing import Any

import pytest

from vedette_rl.agents.registry import BUILT_IN as AGENTS
from vedette_rl.recording.registry import BUILT_IN as RECORDERS
from vedette_services.config import load_config
from vedette_services.config.plugins import GROUPS, OURS, expand_plugin_names
from vedette_services.config.saving import config_table
from vedette_services.errors import SettingError

MODULE = """
from vedette_rl.agents.dqn.agent_type import DqnType
from vedette_rl.agents.dqn.config import DqnConfig


class Config(DqnConfig):
    name: str = "plugged_in:Mine"


class Mine(DqnType):
    name, config = "plugged_in:Mine", Config
"""
ENTRY_POINTS = """
[vedette.agents]
mine = plugged_in:Mine
dqn = plugged_in:Mine

[vedette.networks]
small = plugged_in:Net

[vedette.explorations]
curious = plugged_in:Curious

[vedette.step_processors]
signed = plugged_in:Signed

[vedette.recorders]
printer = plugged_in:Printer
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as pip leaves it: a module, and its metadata beside it."""
    (tmp_path / "plugged_in.py").write_text(MODULE)
    metadata = tmp_path / "plugged_in-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-in\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "plugged_in", raising=False)


@pytest.mark.usefixtures("installed")
def test_an_agents_short_name_is_the_module_and_name_that_travels() -> None:
    config = load_config(agent="mine", settings=["agent.batch_size=16"], environment={}).config
    assert config.agent.name == "plugged_in:Mine"
    assert config.agent.batch_size == 16
    assert config_table(config)["agent"]["name"] == "plugged_in:Mine"


@pytest.mark.usefixtures("installed")
def test_every_kind_of_name_is_spelled_out_and_nothing_is_imported() -> None:
    given: dict[str, Any] = {
        "agent": {"name": "iqn", "network": "small", "exploration": {"kind": "curious"}},
        "actors": {"step_processor": "signed"},
        "learner": {"recorders": ["csv", "printer", "my_pkg:Mine"]},
    }
    assert expand_plugin_names(given) == {
        "agent": {
            "name": "iqn",
            "network": "plugged_in:Net",
            "exploration": {"kind": "plugged_in:Curious"},
        },
        "actors": {"step_processor": "plugged_in:Signed"},
        "learner": {"recorders": ["csv", "plugged_in:Printer", "my_pkg:Mine"]},
    }
    assert given["agent"]["network"] == "small"
    assert "plugged_in" not in sys.modules


@pytest.mark.usefixtures("installed")
def test_our_own_names_cannot_be_taken() -> None:
    assert load_config(agent="dqn", environment={}).config.agent.name == "dqn"


def test_a_name_that_nobody_declares_is_refused_as_ever() -> None:
    with pytest.raises(SettingError, match=r"agent\.name"):
        load_config(agent="nobodys", environment={})


def test_all_our_names_are_known_as_ours() -> None:
    assert set(AGENTS) == set(OURS["vedette.agents"])
    assert set(RECORDERS) < set(OURS["vedette.recorders"])
    assert set(OURS) == set(GROUPS)
