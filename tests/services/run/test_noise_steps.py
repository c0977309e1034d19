"""A run's sequences of coloured noise last as long as its episodes, and it keeps their length."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured  # of tests/support
from local_probe import LocalProcess
from starts import plan, train_in_process

from vedette_rl.agents.config import NOISE_STEPS_MOST
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.settings.later_keys import dump_for_files
from vedette_services.config import RunConfig
from vedette_services.config.peer_settings import settings_for_peers
from vedette_services.config.probing import EnvironmentProbe
from vedette_services.run.noise_steps import choose_noise_steps

PENDULUM = "Pendulum-v1"  # of 200 steps


class Endless(gym.Env[Any, Any]):
    """Its episodes have no limit that is known."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.fixture(autouse=True)
def _endless() -> Iterator[None]:
    gym.register("Endless-v0", Endless)
    yield
    del gym.registry["Endless-v0"]


def chosen(*settings: str, env: str = PENDULUM, agent: str = "sac") -> int | None:
    """`agent.noise_steps` of a start."""
    config = configured("preset=none", *settings, env=env, agent=agent)
    with EnvironmentProbe(start=LocalProcess) as probe:  # type: ignore[arg-type]  # in its place
        return getattr(choose_noise_steps(config, probe).agent, "noise_steps", None)


@pytest.mark.parametrize("agent", ["sac", "td3"])
@pytest.mark.parametrize("color", ["pink", "red", "0.5"])
def test_a_sequence_is_as_long_as_the_time_limit(agent: str, color: str) -> None:
    assert chosen(f"agent.noise_color={color}", agent=agent) == 200


def test_a_time_limit_of_the_run_counts_and_so_does_a_length_that_is_set() -> None:
    pink = "agent.noise_color=pink"
    assert chosen(pink, "env.max_episode_steps=77") == 77
    assert chosen(pink, "agent.noise_steps=50") == 50


def test_without_a_time_limit_it_is_where_evaluations_cut_an_episode() -> None:
    assert chosen("agent.noise_color=pink", env="Endless-v0") == 1000


def test_a_very_long_episode_has_several_sequences() -> None:
    long = chosen("agent.noise_color=pink", "env.max_episode_steps=200000")
    assert long == NOISE_STEPS_MOST


def test_an_environment_that_is_only_declared_is_not_made() -> None:
    space = {"space": "box", "shape": [1], "low": -1.0, "high": 1.0}
    table = {
        "env": {"id": "elsewhere", "observation": space, "action": space},
        "agent": {"name": "sac", "noise_color": "pink"},
    }
    config = configured("preset=none", table=table)
    limited = configured("preset=none", "env.max_episode_steps=30", table=table)
    with EnvironmentProbe(start=_refuse) as probe:
        assert choose_noise_steps(config, probe) == config
        assert choose_noise_steps(limited, probe).agent.noise_steps == 30  # type: ignore[attr-defined]  # it is SAC's


def _refuse(say: Any) -> Any:
    raise AssertionError("an environment is made")


@pytest.mark.parametrize("settings", [(), ("agent.noise_color=white",), ("agent.noise_color=0",)])
def test_white_noise_has_no_length_and_makes_no_environment(settings: tuple[str, ...]) -> None:
    config = configured("preset=none", *settings, env=PENDULUM, agent="sac")
    with EnvironmentProbe(start=_refuse) as probe:
        assert choose_noise_steps(config, probe) == config


def test_agents_without_such_noise_are_left_as_they_are() -> None:
    config = configured("preset=none", env="CartPole-v1", agent="dqn")
    with EnvironmentProbe(start=_refuse) as probe:
        assert choose_noise_steps(config, probe) == config


def test_at_their_defaults_the_keys_are_neither_written_nor_sent() -> None:
    for written in dump_for_files(SacConfig()), settings_for_peers(SacConfig()):
        assert not {"noise_color", "noise_steps"} & written.keys()
    told = settings_for_peers(SacConfig(noise_color="pink", noise_steps=200))
    assert told["noise_color"] == "pink"  # a host that does not know it refuses it by name
    assert told["noise_steps"] == 200


def small(*settings: str, opts: int) -> RunConfig:
    return configured(
        "preset=none",
        "agent.hidden_sizes=[8]",
        "agent.batch_size=8",
        "learner.warmup_period=32",
        "evaluation.episodes=1",
        "learner.eval_interval=100",
        f"stop.max_opts={opts}",
        *settings,
        env=PENDULUM,
        agent="sac",
    )


def test_a_run_saves_the_length_and_goes_on_with_it(tmp_path: Path) -> None:
    train_in_process(small("agent.noise_color=pink", opts=20), tmp_path)
    saved = tomllib.loads((tmp_path / "config.toml").read_text("utf-8"))
    assert (saved["agent"]["noise_color"], saved["agent"]["noise_steps"]) == ("pink", 200)
    config = configured("stop.max_opts=40", saved=tmp_path / "config.toml")
    assert plan(config, tmp_path, in_process=True).config.agent == config.agent
    status = train_in_process(config, tmp_path)
    assert status.opt_steps == 40
