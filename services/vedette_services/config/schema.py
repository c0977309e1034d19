"""The configuration as a JSON schema, so that editors complete and check TOML."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from vedette_rl.agents.config import AgentConfig
from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.envs.config import WrapperConfig
from vedette_rl.named import IMPORT_NAME
from vedette_services.config.run_config import RunConfig

Schema = dict[str, Any]
"""JSON: nested tables, lists, texts, numbers."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NONE: Schema = {"const": "none", "description": "none"}
"""How TOML writes Python's None."""


def config_schema() -> Schema:
    """What a configuration file may say. Nothing in it is required: presets fill the rest in."""
    schema = part_schema(RunConfig)
    agents = [part_schema(kind.config) for kind in BUILT_IN.values()]
    own = {
        "title": "An agent of your own",
        "type": "object",
        "properties": {"name": {"type": "string", "pattern": f"^{IMPORT_NAME}$"}},
        "required": ["name"],
    }
    message = summary(AgentConfig)
    schema["properties"]["agent"] = {"description": message, "anyOf": [*agents, own]}
    return {"$schema": DIALECT, "title": "Vedette's configuration", **schema}


def part_schema(part: type[BaseModel]) -> Schema:
    """A part's schema with everything in place, and its docstring's words."""
    made = part.model_json_schema()
    found: Schema = _resolved(made, made.get("$defs", {}))
    return _described(found, part)


def _resolved(value: Any, definitions: Mapping[str, Any]) -> Any:  # any JSON
    """The same without references, titles that only repeat a name, and what is required."""
    match value:
        case {"$ref": str(name), **more}:
            target = definitions[name.rpartition("/")[2]]
            return {**_resolved(target, definitions), **_resolved(more, definitions)}
        case {"type": "null"}:
            return NONE
        case Mapping():
            return _without(value, definitions)
        case list():
            return [_resolved(one, definitions) for one in value]
        case None:
            return "none"
        case _:
            return value


def _without(table: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    return {
        name: _resolved(inner, definitions)
        for name, inner in table.items()
        if name not in ("$defs", "required", "title")
    }


def _described(schema: Schema, part: type[BaseModel]) -> Schema:
    """Put the docstrings' words where editors show them, part by part."""
    schema["description"] = summary(part)
    docs = key_docs(part)
    for name, field in part.model_fields.items():
        inner = schema["properties"][name]
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            _described(inner, annotation)
        elif name in docs:
            inner["description"] = docs[name]
    if "wrappers" in schema["properties"]:
        text = {"type": "string", "pattern": f"^{IMPORT_NAME}$"}
        schema["properties"]["wrappers"]["items"] = {"anyOf": [text, part_schema(WrapperConfig)]}
    return schema


_ARGUMENT = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def key_docs(part: type[BaseModel]) -> dict[str, str]:
    """A sentence for each key of a class; what a class does not say, its base says."""
    docs: dict[str, str] = {}
    for cls in reversed(part.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            docs.update(_arguments(inspect.cleandoc(cls.__doc__ or "")))
    return {name: docs[name] for name in part.model_fields if name in docs}


def summary(part: type[BaseModel]) -> str:
    """What a class says of itself before it comes to its keys."""
    text = inspect.cleandoc(part.__doc__ or "").partition("\n\nArgs:")[0]
    return _plain(text)


def _arguments(doc: str) -> Iterator[tuple[str, str]]:
    section = doc.partition("\nArgs:\n")[2]
    names: list[str] = []
    message: list[str] = []
    for line in [*section.splitlines(), "end"]:
        begins = _ARGUMENT.fullmatch(line)
        if begins or not line.startswith("     "):
            yield from ((name, _plain(" ".join(message))) for name in names)
            names, message = [], []
        if begins:
            names, message = begins[1].split(", "), [begins[2]]
        elif names:
            message.append(line.strip())
        if line and not line.startswith(" "):
            return


def _plain(text: str) -> str:
    """A docstring's words as Markdown has them, in one line."""
    return " ".join(text.replace("``", "`").split())
