"""Prints two pages from the classes of the configuration.

scripts/configuration_page.py > docs/reference/configuration.md
scripts/configuration_page.py python > docs/reference/settings.md
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

import vedette
from vedette_rl.import_by_name import IMPORT_NAME
from vedette_services.config.presets import describe_preset, preset_names
from vedette_services.config.schema import Schema, config_schema, part_schema

_BEGINNING = """\
# Configuration

`scripts/docs` generates this page from the classes that read the configuration.

A run is configured by one TOML file with a table for each part. Every key has a default. Later
layers override earlier ones: the defaults, the preset of the agent and environment, the file, the
variable `VEDETTE_SET`, the command line.

```sh
vedette config --env CartPole-v1 > mine.toml       # what a first run needs; --all: every key
vedette config mine.toml agent.learning_rate=3e-4  # the same with one key changed
vedette config --schema > vedette.schema.json      # for editors: they complete and check
vedette run mine.toml learner.sync_interval=10
VEDETTE_SET="stop.max_opts=200 seed=3" vedette run mine.toml
```

A file whose first line is `#:schema ./vedette.schema.json` is completed and checked by editors
that know [Taplo](https://taplo.tamasfe.dev) (Even Better TOML, among others). `RUN/config.toml`
has such a line, and the schema beside it.

All errors are listed before the start, one per line, with file, key and fix: keys that do not
exist, wrong types, and settings that contradict each other. Names from other libraries (`lr`,
`gamma`, `buffer_size`, `learning_starts`) are recognised, and the error suggests ours. A count may
be written `1e6`; `none` stands for no value, which TOML cannot write.
"""


_WIDTH = 118
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def reference_page() -> str:
    """The whole page."""
    schema = config_schema()
    parts = schema["properties"]
    plain = {name: part for name, part in parts.items() if "properties" not in part}
    del plain["agent"]
    lines = [_BEGINNING, "## At the top\n", *_table(plain), ""]
    for name, part in parts.items():
        if name == "agent":
            lines += _agents(part)
        elif "properties" in part:
            lines += [f"## {name}\n", _wrapped(part["description"]), ""]
            lines += [*_table(part["properties"], f"{name}."), ""]
            lines += _optional_tables(part["properties"], f"{name}.")
    return "\n".join([*lines, *_presets()]).rstrip() + "\n"


def _agents(part: Schema) -> Iterator[str]:
    yield "## agent\n"
    yield _wrapped(part["description"])
    yield ""
    for kind in part["anyOf"]:
        if "name" not in kind["properties"] or "const" not in kind["properties"]["name"]:
            continue
        yield f"### agent: {kind['properties']['name']['const']}\n"
        yield _wrapped(kind["description"])
        yield ""
        yield from _table(kind["properties"], "agent.")
        yield ""
    yield "### agent: a custom one\n"
    yield '`agent.name = "my_pkg.agents:MyAgent"`; the keys are those of its own class'
    yield "([a custom agent](../how-to/custom-agent.md)).\n"


def _table(properties: Mapping[str, Schema], prefix: str = "") -> Iterator[str]:
    yield "| key | default | takes | what it is |"
    yield "|---|---|---|---|"
    for row in _rows(properties, prefix):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _rows(properties: Mapping[str, Schema], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, key in properties.items():
        if "properties" in key:
            yield from _rows(key["properties"], f"{prefix}{name}.")
            continue
        named = key.get("additionalProperties")
        if isinstance(named, Mapping) and "properties" in named:
            yield (
                f"`{prefix}{name}`",
                "none",
                "tables, each with a name of your own",
                _sentence(key.get("description", "")),
            )
            yield from _rows(named["properties"], f"{prefix}{name}.NAME.")
            continue
        default = f"`{json.dumps(key['default'])}`" if "default" in key else ""
        yield (
            f"`{prefix}{name}`",
            default,
            describe_values(key),
            _sentence(key.get("description", "")),
        )


def _optional_tables(keys: Mapping[str, Schema], prefix: str) -> Iterator[str]:
    """The keys of tables that need not be there; those with the same keys together."""
    names_by_keys: dict[str, tuple[Schema, list[str]]] = {}
    for name, key in keys.items():
        for one in key.get("anyOf", ()):
            if "properties" in one:
                same = names_by_keys.setdefault(json.dumps(one["properties"]), (one, []))
                same[1].append(f"`{prefix}{name}`")
    for one, names in names_by_keys.values():
        yield from (f"### {' and '.join(names)}\n", _wrapped(one["description"]), "")
        yield from (*_table(one["properties"], ""), "")


def describe_values(key: Schema) -> str:
    """The values that a key may have, in words."""
    match key:
        case {"anyOf": list(members)}:
            return " or ".join(dict.fromkeys(describe_values(member) for member in members))
        case {"const": value}:
            return f"`{value}`"
        case {"enum": list(values)}:
            return ", ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": inner}:
            return f"list of: {describe_values(inner)}"
        case {"type": "string", "pattern": str(pattern)}:
            return "`module:Name`" if pattern == f"^{IMPORT_NAME}$" else "text"
        case {"type": str(kind)}:
            return _KINDS[kind] + _range(key)
    return "anything"


_KINDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "`true`, `false`",
    "object": "table",
}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}


def _range(key: Schema) -> str:
    bounds = [
        message.format(_number(key[name])) for name, message in _BOUNDS.items() if name in key
    ]
    return f" {', '.join(bounds)}" if bounds else ""


def _number(bound: float) -> str:
    return f"{int(bound):,}" if float(bound).is_integer() else f"{bound:g}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] if not text.startswith("`") else text


def _wrapped(text: str) -> str:
    return textwrap.fill(_sentence(text), _WIDTH, **_WHOLE_WORDS)


def _presets() -> Iterator[str]:
    yield "## Presets\n"
    yield "A run starts from the preset of its agent and environment, where there is one; with"
    yield '`preset = "none"` it starts from the defaults.\n'
    yield "```sh\nvedette config --env Pendulum-v1  # the configuration with its preset\n```\n"
    for name in preset_names():
        yield textwrap.fill(
            f"* `{name}`: {describe_preset(name)}", _WIDTH, subsequent_indent="  ", **_WHOLE_WORDS
        )


_PYTHON_BEGINNING = """\
# Settings classes in Python

`scripts/docs` generates this page from the classes. They are the tables of
[the configuration](configuration.md), which describes each key in full, with its keys as arguments.
They are frozen.

```python
import vedette

vedette.train(
    env="Pendulum-v1",
    agent=vedette.SAC(learning_rate=3e-4, hidden_sizes=(256, 256)),
    actors=vedette.ActorsConfig(count=4, envs_per_actor=8),
    stop=vedette.StopConfig(max_env_steps=100_000),
)
```

A dictionary of the same keys works too: `stop={"max_env_steps": 100_000}`.
"""

_CLASSES = {
    "DQN": ("agent", "agent-dqn"),
    "IQN": ("agent", "agent-iqn"),
    "SAC": ("agent", "agent-sac"),
    "TD3": ("agent", "agent-td3"),
    "APPO": ("agent", "agent-appo"),
    "ExplorationConfig": ("exploration of an agent", "agent-dqn"),
    "EnvConfig": ("env", "env"),
    "WrapperConfig": ("an entry of env's wrappers", "env"),
    "ActorsConfig": ("actors", "actors"),
    "ReplayConfig": ("replay", "replay"),
    "SourceConfig": ("an entry of replay's sources", "replay"),
    "LearnerConfig": ("learner", "learner"),
    "EvaluationConfig": ("evaluation", "evaluation"),
    "StopConfig": ("stop", "stop"),
}
"""The classes by their names, each with the argument that takes it and its heading of
`configuration.md`."""


def python_page() -> str:
    """The page of the classes that Python programs give."""
    lines = [_PYTHON_BEGINNING]
    for name, (argument, heading) in _CLASSES.items():
        lines += [f"## vedette.{name}\n", *_class_section(name, argument, heading), ""]
    return "\n".join(lines).rstrip() + "\n"


def _class_section(name: str, argument: str, heading: str) -> Iterator[str]:
    kind: type[BaseModel] = getattr(vedette, name)
    about = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
    about = " ".join(about.replace("``", "`").split())
    yield textwrap.fill(
        f"{about} Given as `{argument}`; its keys [in full](configuration.md#{heading}).",
        _WIDTH,
        **_WHOLE_WORDS,
    )
    yield ""
    yield "| argument | default | what it is |"
    yield "|---|---|---|"
    for key, schema in part_schema(kind)["properties"].items():
        field = kind.model_fields[key]
        default = "required"
        if not field.is_required():
            value = field.get_default(call_default_factory=True, validated_data={})
            default = "its defaults" if isinstance(value, BaseModel) else f"`{value!r}`"
        cells = (f"`{key}`", default, _first_sentence(_sentence(schema.get("description", ""))))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _first_sentence(text: str) -> str:
    """The first sentence of a description, without its sources in parentheses."""
    sentence = re.split(r"(?<=\.) (?=[A-Z`])", text, maxsplit=1)[0]
    return re.sub(r" \((?:[^()]|\([^()]*\))*(?:arXiv|et al|paper|own)[^()]*\)", "", sentence)


if __name__ == "__main__":
    print(python_page() if sys.argv[1:] == ["python"] else reference_page(), end="")
