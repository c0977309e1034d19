"""``vedette config`` refuses what ``vedette run`` refuses before it makes the environment."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str]]

MODULE = """
import gymnasium as gym


class Mine(gym.Env):
    def __init__(self):
        raise RuntimeError("made")
"""


@pytest.mark.parametrize(
    "settings",
    [
        ["env.id=NoSuch-v0"],
        ["env.id=no.such:Mine"],
        ["env.id=mine:Yours"],
        ['env.wrappers=["no.such:Wrapper"]'],
        ['env.wrappers=["mine:Mine"]'],
        ["agent.network=no.such:Network"],
        ["agent.exploration.kind=mine:Explore"],
        ["replay.name=mine:Replay"],
        ["actors.step_processor=no.such:Steps"],
        ['learner.recorders=["no.such:Recorder"]'],
        ["actors.count=0"],
        ["learner.pretrain_opts=10", "replay.capacity=100"],
        ["replay.samples_per_insert=1", "replay.error_buffer=0.1"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("probed_here")
def test_config_and_run_refuse_with_the_same_lines(
    vedette: Run, tmp_path: Path, settings: list[str]
) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    status, refusal = vedette("config", "--agent", "dqn", *settings)
    assert status == 2, refusal
    assert (status, refusal) == vedette("run", "--agent", "dqn", "--out", "run", *settings)


def test_config_prints_nothing_but_toml_and_makes_no_environment(tmp_path: Path) -> None:
    loud = "print('the module was imported')\nclass Network:\n    pass\n"
    (tmp_path / "loud.py").write_text(f"{MODULE}\n{loud}")
    settings = ["env.id=loud:Mine", "agent.name=dqn", "agent.network=loud:Network"]
    done = subprocess.run(
        [sys.executable, "-m", "vedette.cli", "config", *settings],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert tomllib.loads(done.stdout)["env"] == {"id": "loud:Mine"}
    assert done.stderr == "the module was imported\n"
