"""Every example of the documentation runs, and the parts among them keep the contracts."""

import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner

from vedette.cli.app import app
from vedette_rl.agents import AgentKind
from vedette_rl.core import Agent, ModelInfo, Policy, RowColumn, StepProcessor
from vedette_rl.envs import Spaces
from vedette_rl.testing import (
    AgentContract,
    PolicyContract,
    RecurrentAgentContract,
    ReplayBufferContract,
    StepProcessorContract,
    sampled_obs,
)

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SAYS = {
    "custom_agent": "max_opts",
    "custom_columns": "max_opts",
    "custom_encoder": "max_opts",
    "custom_replay": "max_opts",
    "custom_recorder": "time_s,step,name,value",
    "custom_steps": "max_opts",
    "gru_agent": "target_return 1.0",
    "trained_elsewhere": "500.0 ± 0.0 over 20 episodes",
}


def test_every_example_is_run() -> None:
    fed = ["custom_loop", "robot"]  # by actors: test_remote_replay.py; beside a learner: its page
    assert sorted([*SAYS, *fed]) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


R2D2 = EXAMPLES / "r2d2.toml"
SMALL = [
    *("actors.count=1", "actors.envs_per_actor=8", "agent.memory_size=8"),
    *("agent.hidden_sizes=[16,16]", "agent.batch_size=4", "replay.sequence=10"),
    *("replay.burn_in=5", "replay.capacity=20000", "learner.warmup_period=200", "stop.max_opts=5"),
]


def test_r2d2s_settings_learn(tmp_path: Path) -> None:
    env = ["--env", "vedette_rl.testing:RepeatFirst", "--in-process"]
    arguments = ["run", str(R2D2), *env, *SMALL, "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "4 sequences of 10 steps behind up to 5 of burn-in" in done.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["exit_reason"], summary["opt_steps"]) == ("max_opts", 5)


def test_a_loop_of_cleanrl_s_style_changes_in_at_most_thirty_lines() -> None:
    lines = (EXAMPLES / "custom_loop.py").read_text("utf-8").splitlines()
    marked = [line for line in lines if line.endswith("# +")]
    page = (EXAMPLES.parent / "how-to" / "custom-loop.md").read_text("utf-8")
    assert f"the {len(marked)} lines that concern Vedette" in page
    assert len(marked) <= 30
    unmarked = "\n".join(line for line in lines if line not in marked)
    assert "vedette" not in unmarked.partition('"""\n\n')[2]


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


VECTOR: gym.Space[Any] = gym.spaces.Box(-1, 1, (3,), np.float32)
PARTS = gym.spaces.Dict({"camera": gym.spaces.Box(0, 255, (2, 2), np.uint8), "joints": VECTOR})


def example(name: str, attribute: str) -> Any:
    """What a file of the documentation defines."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return getattr(importlib.import_module(name), attribute)
    finally:
        sys.path.remove(str(EXAMPLES))


class Halves(AgentContract, PolicyContract):
    """Both halves of an agent of the documentation."""

    discount = 0.99
    kind: AgentKind[Any]
    observation: gym.Space[Any] = VECTOR

    def make_spaces(self) -> Spaces:
        return Spaces(self.observation, gym.spaces.Discrete(2))

    def make_agent(self, seed: int) -> Agent:
        config = self.kind.config(name=self.kind.name)
        return self.kind.build_agent(config, self.make_spaces(), device="cpu", seed=seed)

    def make_policy(self, envs: int, seed: int) -> Policy:
        config = self.kind.config(name=self.kind.name)
        ranks = np.zeros(envs)
        return self.kind.build_policy(config, self.make_spaces(), ranks=ranks, seed=seed)

    def make_model(self, seed: int) -> ModelInfo:
        return self.make_agent(seed).model_info()


class TestTheAgent(Halves):
    kind = example("custom_agent", "Linear")


class TestTheAgentOnADictionary(TestTheAgent):
    observation = PARTS


class TestTheAgentWithAColumn(Halves):
    kind = example("custom_columns", "Sampling")
    columns = (RowColumn("log_prob"),)

    def test_its_column_is_the_logarithm_of_the_probability_of_what_it_did(self) -> None:
        policy = self.acting()
        obs = {"obs": np.tile(sampled_obs(VECTOR, 1, 0)["obs"], (20_000, 1))}
        action = policy.act(obs, explore=True)
        log_prob = policy.acted_columns()["log_prob"]  # type: ignore[attr-defined]
        for chosen in (0, 1):
            share = float((action == chosen).mean())
            assert np.exp(log_prob[action == chosen].mean()) == pytest.approx(share, abs=0.02)


class TestTheAgentWithMemory(Halves, RecurrentAgentContract):
    kind = example("gru_agent", "Gru")
    columns = (RowColumn("memory", shape=(32,), first=True),)


class TestTheReplay(ReplayBufferContract):
    replay = example("custom_replay", "Recent")


class TestTheStepProcessor(StepProcessorContract):
    def make_processor(self, envs: int, dtype: np.dtype[Any]) -> StepProcessor:
        made: StepProcessor = example("custom_steps", "SignedRewards")(1, 0.9, envs, dtype)
        return made
