"""Configurations of runs, the same on every machine."""

from __future__ import annotations

from typing import Any

from vedette_services.config import RunConfig, load_config


def configured(*settings: str, **given: Any) -> RunConfig:
    """The configuration of a run, whatever `VEDETTE_` variables the machine has set.

    Args:
        settings: ``key=value`` each.
        given: the other arguments of `load_config`: `env`, `agent`, `table`, ...
    """
    return load_config(settings=settings, environment={}, **given).config
