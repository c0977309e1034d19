"""Every example of the documentation runs, and the agent among them keeps the contract."""

import importlib
import runpy
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.core import Agent
from vedette_rl.envs import Spaces
from vedette_rl.testing import AgentContract

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SAYS = {
    "own_agent": "max_opts",
    "own_encoder": "max_opts",
    "own_recorder": "time_s,step,name,value",
    "own_steps": "max_opts",
    "trained_elsewhere": "500.0 ± 0.0 over 20 episodes",
}


def test_every_example_is_run() -> None:
    assert sorted(SAYS) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SAYS)
def test_the_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, name, raising=False)
    before = dict(gym.registry)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    gym.registry.clear()
    gym.registry.update(before)
    assert SAYS[name] in capsys.readouterr().out


class TestTheExampleAgent(AgentContract):
    discount = 0.99

    def make_spaces(self) -> Spaces:
        return Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))

    def make_agent(self, seed: int) -> Agent:
        sys.path.insert(0, str(EXAMPLES))
        try:
            kind = importlib.import_module("own_agent").Linear
        finally:
            sys.path.remove(str(EXAMPLES))
        agent = kind.build_agent(
            kind.config(name=kind.name), self.make_spaces(), device="cpu", seed=seed
        )
        assert isinstance(agent, Agent)
        return agent
