"""Tuned presets as data: ``AGENT-ENVIRONMENT.toml``, found by name and by nothing else."""

from __future__ import annotations

import itertools
import tomllib
from importlib import resources
from typing import Any

from vedette_rl.agents.registry import BUILT_IN
from vedette_services.config.settings import merge_tables


def preset_names() -> list[str]:
    """Every preset, as ``AGENT-ENVIRONMENT``."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def describe_preset(name: str) -> str:
    """The description at the head of a preset's file."""
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8")
    head = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return " ".join(line.lstrip("# ") for line in head)


def read_preset(agent: str, env_id: str) -> dict[str, Any] | None:
    """The preset of this pair as a nested table; None where there is none.

    An environment of a namespace (``ALE/Pong-v5``) has that of its namespace (``dqn-ALE``) with its
    own (``dqn-ALE_Pong-v5``) laid over it.
    """
    known = preset_names()
    table: dict[str, Any] | None = None
    for name in _names(agent, env_id):
        if name in known:
            table = merge_tables(table or {}, _read(name))
    return table


def preset_agent(env_id: str) -> str | None:
    """The agent that has a preset for an environment, the first of the registry; None where none
    has."""
    known = preset_names()
    for agent in BUILT_IN:
        if any(name in known for name in _names(agent, env_id)):
            return agent
    return None


_REGISTERED_BY = frozenset({"gymnasium", "ale_py"})
"""Packages under whose names presets are made: ``ale_py:ALE/Pong-v5`` is ``ALE/Pong-v5``."""


def _names(agent: str, env_id: str) -> list[str]:
    """The presets that may speak of a pair, the most general first."""
    module, _, name = env_id.rpartition(":")
    if module.partition(".")[0] in _REGISTERED_BY:
        env_id = name
    namespace, _, _ = env_id.rpartition("/")
    own = f"{agent}-{env_id.replace('/', '_')}"
    return [f"{agent}-{namespace}", own] if namespace else [own]


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8"))
