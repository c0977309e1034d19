"""Tuned presets as data: ``AGENT-ENVIRONMENT.toml``, found by name and by nothing else."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any


def preset_names() -> list[str]:
    """Every preset, as ``AGENT-ENVIRONMENT``."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def preset(agent: str, env_id: str) -> dict[str, Any] | None:
    """The preset of this pair as a nested table; None where there is none."""
    name = f"{agent}-{env_id}"
    if name not in preset_names():
        return None
    return tomllib.loads(resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8"))


def preset_agent(env_id: str) -> str | None:
    """The agent that has a preset for an environment; None where none has."""
    for name in preset_names():
        agent, _, env = name.partition("-")
        if env == env_id:
            return agent
    return None
