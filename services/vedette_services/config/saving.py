"""Writes a configuration such that `read_config` gives it back."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import tomli_w
from pydantic import BaseModel

from vedette_rl.storage.atomic_files import NO_ROOM, replace_file, replace_or_overwrite
from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.config.run_config import RunConfig
from vedette_services.config.schema import SCHEMA_FILE, config_schema
from vedette_services.config.settings import NONE, Table

log = logging.getLogger("vedette.learner")


def write_config(config: RunConfig, path: Path, comment: str = "") -> None:
    """Write a configuration such that `read_config` gives it back; renamed to `path` when whole."""
    replace_file(path, config_text(config, comment), durable=True)


def publish_config(config: RunConfig, path: Path, comment: str = "") -> None:
    """Write it for people: with its JSON schema beside it, by which editors complete and check.

    On a full disk a run continues without the schema.
    """
    try:
        schema = json.dumps(config_schema(), indent=1) + "\n"
        replace_file(path.with_name(SCHEMA_FILE), schema)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        log.warning("%s not written: %s", SCHEMA_FILE, describe_write_error(error, path))
    replace_or_overwrite(path, f"#:schema ./{SCHEMA_FILE}\n{config_text(config, comment)}")


def config_text(config: RunConfig, comment: str = "") -> str:
    """A configuration as TOML, below a comment."""
    text = "".join(f"# {line}\n" for line in comment.splitlines())
    return text + tomli_w.dumps(config_table(config))


def config_table(config: RunConfig) -> Table:
    """A configuration as TOML can write it; None is left out where it is the default."""
    table = _without_none(config.model_dump(mode="json"), config)
    if config.preset == "auto":
        table["preset"] = NONE  # what a preset gives is in it
    return table


def _without_none(table: Table, model: BaseModel) -> Table:
    """`table` of `model` without the None that are defaults; others are written out."""
    written: Table = {}
    for name, value in table.items():
        inner = getattr(model, name, None)
        if isinstance(inner, BaseModel) and isinstance(value, dict):
            written[name] = _without_none(value, inner)
        elif isinstance(inner, dict) and any(isinstance(x, BaseModel) for x in inner.values()):
            written[name] = {key: _without_none(value[key], inner[key]) for key in inner}
        elif value is not None:
            written[name] = value
        elif type(model).model_fields[name].default is not None:
            written[name] = NONE
    return written


# Two starts of a run
