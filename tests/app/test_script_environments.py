"""Environments that a user's script defines or imports, as the actors of a run make them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = """
import gymnasium as gym
import numpy as np

class Corridor(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=8):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        self.steps += 1
        obs = np.array([self.place / self.length], np.float32)
        return obs, -1.0, self.place == self.length, self.steps >= 50, {}
"""
TRAIN = """
{guard}
    import vedette
    result = vedette.train(
        env={env},
        agent=vedette.DQN(hidden_sizes=(16,)),
        actors=1,
        learner=vedette.LearnerConfig(warmup_period=64, eval_interval=20),
        evaluation=vedette.EvaluationConfig(episodes=2),
        stop=vedette.StopConfig(max_opts=40),
        out="run",
        progress=False,
    )
    print(result.exit_reason)
"""
GUARD = 'if __name__ == "__main__":'
NONE = "if True:"


def run(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )


def write(tmp_path: Path, *, env: str, guard: str = GUARD, beside: bool = False) -> Path:
    """A script in a folder that is not the current one, with its environment or beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    train = TRAIN.format(guard=guard, env=env)
    if beside:
        (folder / "corridors.py").write_text(ENVIRONMENT)
    script = folder / "train_corridor.py"
    script.write_text(("from corridors import Corridor\n" if beside else ENVIRONMENT) + train)
    return script


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beside", "env", "name"),
    [
        (False, "Corridor", "train_corridor:Corridor"),
        (True, "__import__('functools').partial(Corridor, length=4)", "corridors:Corridor"),
    ],
    ids=["defined in the script", "in a module beside it"],
)
def test_actors_import_a_class_of_a_script_and_of_its_folder(
    tmp_path: Path, beside: bool, env: str, name: str
) -> None:
    script = write(tmp_path, env=env, beside=beside)
    ran = run(tmp_path, str(script))
    assert (ran.returncode, ran.stdout) == (0, "max_opts\n"), ran.stderr
    assert f'id = "{name}"' in (tmp_path / "run/config.toml").read_text()
    played = run(script.parent, "-m", "vedette.cli", "eval", str(tmp_path / "run"), "--json")
    assert json.loads(played.stdout)["episodes"] == 2, played.stderr
    again = run(tmp_path, str(script))  # it is over
    assert again.stdout == "max_opts\n", again.stderr


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_to_have_one(tmp_path: Path) -> None:
    ran = run(tmp_path, str(write(tmp_path, env="Corridor", guard=NONE)))
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert 'put the call under `if __name__ == "__main__":`' in last, ran.stderr


@pytest.mark.slow
def test_a_class_of_an_interactive_session_is_refused_for_actors(tmp_path: Path) -> None:
    code = ENVIRONMENT + TRAIN.format(guard=NONE, env="Corridor")
    ran = run(tmp_path, "-c", code)
    last = ran.stderr.strip().splitlines()[-1]
    assert "put it into a module (a .py file in this folder), or train with in_process=True" in last
    assert not (tmp_path / "run").exists()
