"""The configuration's reference, written from its classes: ``docs/configuration.md``.

``python -m vedette_services.config.reference_page`` prints it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from vedette_rl.named import IMPORT_NAME
from vedette_services.config.presets import describe_preset, preset_names
from vedette_services.config.schema import Schema, config_schema

_BEGINNING = """\
# Configuration

This page is written by `scripts/docs` from the classes that read the configuration: it is what
the program does.

A run is configured by one TOML file with a table for each part. Everything has a default, and
later layers win: the defaults, the tuned preset of the agent and environment, the file, the
variable `VEDETTE_SET`, the command line.

```sh
vedette config --env CartPole-v1 > mine.toml       # everything, as a run of it would have it
vedette config mine.toml agent.learning_rate=3e-4  # the same with one key changed
vedette config --schema > vedette.schema.json      # for editors: they complete and check
vedette run mine.toml learner.sync_interval=10
VEDETTE_SET="stop.max_opts=200 seed=3" vedette run mine.toml
```

A file whose first line is `#:schema ./vedette.schema.json` is completed and checked by editors
that know [Taplo](https://taplo.tamasfe.dev) (Even Better TOML, among others). `RUN/config.toml`
has such a line, and the schema beside it.

What is wrong is refused before anything starts: every key that does not exist, has another type
or contradicts another, in a line each that names the file, the key and the mend. The words of
other libraries (`lr`, `gamma`, `buffer_size`, `learning_starts`) are understood well enough to
say what they are called here. A count may be written `1e6`; `none` is how TOML writes nothing.
"""


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
            lines += [f"## {name}\n", _sentence(part["description"]), ""]
            lines += [*_table(part["properties"], f"{name}."), ""]
    return "\n".join([*lines, *_presets()]).rstrip() + "\n"


def _agents(part: Schema) -> Iterator[str]:
    yield "## agent\n"
    yield _sentence(part["description"])
    yield ""
    for kind in part["anyOf"]:
        if "name" not in kind["properties"] or "const" not in kind["properties"]["name"]:
            continue
        yield f"### agent: {kind['properties']['name']['const']}\n"
        yield _sentence(kind["description"])
        yield ""
        yield from _table(kind["properties"], "agent.")
        yield ""
    yield "### agent: your own\n"
    yield '`agent.name = "my_pkg.agents:MyAgent"`; the keys are those of its own class'
    yield "([your-own.md](your-own.md)).\n"


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
        default = f"`{json.dumps(key['default'])}`" if "default" in key else ""
        yield (
            f"`{prefix}{name}`",
            default,
            describe_values(key),
            _sentence(key.get("description", "")),
        )


def describe_values(key: Schema) -> str:
    """What a key may be, in words."""
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


def _presets() -> Iterator[str]:
    yield "## Presets\n"
    yield "A run begins from the preset of its agent and environment, where there is one; with"
    yield '`preset = "none"` it begins from the defaults.\n'
    yield "```sh\nvedette config --env Pendulum-v1        # shows what its preset comes to\n```\n"
    yield from (f"* `{name}`: {describe_preset(name)}" for name in preset_names())


if __name__ == "__main__":
    print(reference_page(), end="")
