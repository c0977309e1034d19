"""Prints a configuration for people: what a first run needs, or every key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import tomli_w
from pydantic import BaseModel

from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import config_table
from vedette_services.config.settings import NONE, Table, merge_tables, set_value

_FIRST = (
    "seed",
    "env.id",
    "env.max_episode_steps",
    "agent.name",
    "agent.learning_rate",
    "agent.batch_size",
    "agent.discount",
    "agent.n_step",
    "agent.hidden_sizes",
    "actors.count",
    "actors.envs_per_actor",
    "replay.capacity",
    "replay.samples_per_insert",
    "learner.warmup_period",
    "learner.eval_interval",
    "learner.device",
    "evaluation.episodes",
    "stop.max_opts",
    "stop.max_env_steps",
    "stop.max_seconds",
    "stop.target_return",
)
"""Keys that a first run may want to change."""

_UNSET = "none, where nothing is set"
"""Stands for a value that is not set until the line is written as a comment."""


def first_text(config: RunConfig, comment: str, given: Collection[str]) -> str:
    """The keys that a first run needs and those that were given, as TOML.

    A run of this text has the values of `config`: those of other keys come from the same preset and
    defaults.

    Args:
        comment: stands at its head.
        given: the keys that the user has set, as dotted names.
    """
    every = list(_leaves(config_table(config), config))
    table: Table = {}
    shown = 0
    for key, value in every:
        is_given = any(one == key or one.startswith(f"{key}.") for one in given)
        if is_given or (key in _FIRST and value is not None):
            set_value(table, key.split("."), NONE if value is None else value)
            shown += 1
    more = f"{shown} of {len(every)} keys: `vedette config --all` shows every key"
    return f"{_comment(comment)}{tomli_w.dumps(table)}\n{_comment(more)}"


def complete_text(config: RunConfig, comment: str) -> str:
    """Every key as TOML, those that are not set as comments.

    Args:
        comment: stands at its head.
    """
    every = list(_leaves(config_table(config), config))
    unset: Table = {}
    for key, value in every:
        if value is None:
            set_value(unset, key.split("."), _UNSET)
    text = tomli_w.dumps(merge_tables(config_table(config), unset))
    text = re.sub(rf'(?m)^(\S+) = "{_UNSET}"$', rf'# \1 = "{NONE}"', text)
    return f"{_comment(comment)}{text}\n{_comment(f'{len(every)} keys')}"


def _leaves(table: Table, model: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield every key with its value; None where nothing is set. A table that the user names is one
    key, and so is one of free arguments."""
    for name in type(model).model_fields:
        inner = getattr(model, name)
        value = table.get(name)
        if isinstance(inner, BaseModel) and isinstance(value, dict):
            yield from _leaves(value, inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())
