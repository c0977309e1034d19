"""A configuration as people read it: what a first run needs, or every key."""

import tomllib
from pathlib import Path

import pytest

from vedette_services.config import load_config
from vedette_services.config.printing import complete_text, first_text

COMMANDS = [
    ("CartPole-v1", None, []),
    ("Pendulum-v1", None, ["agent.tau=0.01", "env.kwargs.g=9.8"]),
    ("MountainCar-v0", "iqn", ["actors.count=8"]),
    ("Pendulum-v1", "td3", ["preset=none", "stop.max_env_steps=5000"]),
    ("CartPole-v1", "dqn", ["stop.target_return=none", "env.max_episode_steps=none"]),
]


@pytest.mark.parametrize(("env", "agent", "settings"), COMMANDS)
def test_a_run_of_the_short_text_is_the_same(
    env: str, agent: str | None, settings: list[str], tmp_path: Path
) -> None:
    loaded = load_config(env=env, agent=agent, settings=settings, environment={})
    short = tmp_path / "mine.toml"
    short.write_text(first_text(loaded.config, loaded.comment, loaded.given))
    assert load_config(short, environment={}).config == loaded.config


def test_the_short_text_has_what_a_first_run_needs_and_what_was_given() -> None:
    loaded = load_config(env="CartPole-v1", settings=["agent.tau=0.5"], environment={})
    text = first_text(loaded.config, "from a preset", loaded.given)
    table = tomllib.loads(text)
    assert text.startswith("# from a preset\n")
    assert table["agent"]["learning_rate"] == loaded.config.agent.learning_rate
    assert table["agent"]["tau"] == 0.5
    assert "adam_eps" not in table["agent"]
    assert set(table["stop"]) >= {"max_env_steps", "target_return"}


def count_keys(text: str) -> int:
    """Count the lines that set a key, or would without their comment sign, and empty tables."""
    lines = text.splitlines()
    keys = sum(" = " in line for line in lines)
    tables = sum(
        line.startswith("[") and not (after and " = " in after)
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
    )
    return keys + tables


@pytest.mark.parametrize("agent", ["dqn", "iqn", "sac", "td3"])
def test_the_numbers_of_keys_are_those_that_are_printed(agent: str) -> None:
    config = load_config(env="Pendulum-v1" if agent in ("sac", "td3") else None, agent=agent).config
    whole = complete_text(config, "")
    body, _, last = whole.rstrip("\n").rpartition("\n")
    assert last == f"# {count_keys(body)} keys"
    short = first_text(config, "", ())
    body, _, last = short.rstrip("\n").rpartition("\n")
    assert last.startswith(f"# {count_keys(body)} of {count_keys(whole.rpartition('#')[0])} keys")


def test_the_whole_text_names_what_is_not_set_and_loads() -> None:
    config = load_config(env="CartPole-v1", environment={}).config
    text = complete_text(config, "")
    assert '# max_episode_steps = "none"\n' in text
    assert '# init_from = "none"\n' in text
    assert tomllib.loads(text)["env"]["id"] == "CartPole-v1"
