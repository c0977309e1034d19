"""The JSON schema of the configuration, by which editors complete and check TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.import_by_name import IMPORT_NAME
from vedette_services.config.run_config import RunConfig

SCHEMA_FILE = "config.schema.json"


Schema = dict[str, Any]
"""JSON: nested tables, lists, texts, numbers."""


DIALECT = "https://json-schema.org/draft/2020-12/schema"


NO_VALUE: Schema = {"const": "none", "description": "none"}
"""Python's None, as TOML writes it."""


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
    schema: Schema = _resolved(made, made.get("$defs", {}))
    return schema


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
    schema = {
        name: _resolved(inner, definitions)
        for name, inner in table.items()
        if name not in ("$defs", "required", "title")
    }
    if isinstance(text := schema.get("description"), str):  # a docstring: in one line of Markdown
        schema["description"] = " ".join(text.replace("``", "`").split())
    return schema
