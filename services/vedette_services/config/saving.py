"""Writes a configuration such that `read_config` gives it back, compares two of them, and describes
it as a JSON schema, so that editors complete and check TOML.

What may not change when a run resumes is marked where it is declared, by
`vedette_rl.settings.stored`; `vedette_services.run.resume` refuses it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel

from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.import_by_name import IMPORT_NAME
from vedette_rl.settings.stored import StoredIn, marks_of
from vedette_rl.storage.atomic_files import NO_ROOM, replace_file, replace_or_overwrite
from vedette_services.config.run_config import RunConfig
from vedette_services.config.settings import NONE, Table
from vedette_services.errors import SettingError

SCHEMA_FILE = "config.schema.json"

Schema = dict[str, Any]
"""JSON: nested tables, lists, texts, numbers."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NO_VALUE: Schema = {"const": "none", "description": "none"}
"""Python's None, as TOML writes it."""

log = logging.getLogger("vedette.learner")


def write_config(config: RunConfig, path: Path, comment: str = "") -> None:
    """Write a configuration such that `read_config` gives it back; renamed to `path` when whole."""
    replace_file(path, config_text(config, comment), durable=True)


def publish_config(config: RunConfig, path: Path, comment: str = "") -> None:
    """Write it for people: with its JSON schema beside it, by which editors complete and check.

    On a full disk a run goes on without the schema.
    """
    try:
        schema = json.dumps(config_schema(), indent=1) + "\n"
        replace_file(path.with_name(SCHEMA_FILE), schema)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        log.warning("%s not written: %s", SCHEMA_FILE, error.strerror)
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


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A key that differs from the last start's.

    Args:
        before, now: its values as `--set` takes them.
        stored_in: where the value of before is part of what is stored: ``samples``, ``weights``,
            ``best``.
    """

    key: str
    before: str
    now: str
    stored_in: frozenset[str]

    @property
    def values(self) -> str:
        """Both values."""
        return f"{self.before} -> {self.now}"

    def __str__(self) -> str:
        return f"{self.key}: {self.values}"

    def refusal(self, out: Path, stored: set[str]) -> SettingError:
        """Return the error for a resume that would mix both; `stored` is what there is."""
        in_weights = "weights" in self.stored_in & stored
        made_with = "" if in_weights else "samples made with "
        erase = "erase it with --fresh --force"
        fix = erase if in_weights else "begin its replay anew with --new-replay"
        return SettingError(
            self.key,
            f"the run in {out} has {made_with}{self.before}, not {self.now}",
            f"set {self.key}={self.before}, choose another --out, or {fix}",
        )


def changed_settings(before: RunConfig, now: RunConfig) -> list[ChangedSetting]:
    """List the keys whose values differ, in the order of the configuration."""
    old, new = dict(_settings(before)), dict(_settings(now))
    return [
        ChangedSetting(
            key,
            _text(old[key][0]) if key in old else "unset",
            _text(new[key][0]) if key in new else "unset",
            _stored_in((old if key in old else new)[key][1], before, now),
        )
        for key in dict.fromkeys([*new, *old])
        if key not in old or key not in new or old[key][0] != new[key][0]
    ]


def _stored_in(marks: frozenset[StoredIn], *configs: RunConfig) -> frozenset[str]:
    """Return where a marked value is stored: single transitions have no sums."""
    sums = any(c.agent.n_step > 1 or c.actors.step_processor != "n_step" for c in configs)
    return frozenset(mark.what for mark in marks if sums or not mark.sums_only)


def _settings(part: BaseModel, prefix: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield each key with its value, as JSON has it, and its marks."""
    values = part.model_dump(mode="json")
    for name in type(part).model_fields:
        inner = getattr(part, name)
        if isinstance(inner, BaseModel):
            yield from _settings(inner, f"{prefix}{name}.")
        elif isinstance(inner, dict) and any(isinstance(i, BaseModel) for i in inner.values()):
            for key, table in inner.items():
                yield from _settings(table, f"{prefix}{name}.{key}.")
        else:
            yield f"{prefix}{name}", (values[name], marks_of(type(part), name))


def _text(value: Any) -> str:  # any JSON
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def config_schema() -> Schema:
    """The schema of a configuration file. Nothing in it is required: presets fill the rest in."""
    schema = part_schema(RunConfig)
    agents = [part_schema(kind.config) for kind in BUILT_IN.values()]
    own = {
        "title": "An agent of your own",
        "type": "object",
        "properties": {"name": {"type": "string", "pattern": f"^{IMPORT_NAME}$"}},
        "required": ["name"],
    }
    parts = schema["properties"]
    parts["agent"] = {"description": parts["agent"]["description"], "anyOf": [*agents, own]}
    wrappers = parts["env"]["properties"]["wrappers"]
    text = {"type": "string", "pattern": f"^{IMPORT_NAME}$"}
    wrappers["items"] = {"anyOf": [text, wrappers["items"]]}
    return {"$schema": DIALECT, "title": "Vedette's configuration", **schema}


def part_schema(part: type[BaseModel]) -> Schema:
    """A part's schema with everything in place, and its docstrings as descriptions."""
    made = part.model_json_schema()
    found: Schema = _resolved(made, made.get("$defs", {}))
    return found


def _resolved(value: Any, definitions: Mapping[str, Any]) -> Any:  # any JSON
    """Resolve references; drop titles that only repeat a name, and what is required."""
    match value:
        case {"$ref": str(name), **more}:
            target = _resolved(definitions[name.rpartition("/")[2]], definitions)
            return {**_resolved(more, definitions), **target}  # its own description, not the key's
        case {"type": "null"}:
            return NO_VALUE
        case Mapping():
            return _without(value, definitions)
        case list():
            return [_resolved(one, definitions) for one in value]
        case None:
            return "none"
        case _:
            return value


def _without(table: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    found = {
        name: _resolved(inner, definitions)
        for name, inner in table.items()
        if name not in ("$defs", "required", "title")
    }
    if isinstance(text := found.get("description"), str):  # a docstring: in one line of Markdown
        found["description"] = " ".join(text.replace("``", "`").split())
    return found
