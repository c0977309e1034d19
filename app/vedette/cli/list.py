"""``vedette list``: the names that can be configured."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import complete_environments
from vedette.cli.output import speaking_alone, write, writes_to_terminal

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec


Row = dict[str, str]
"""A name, with ``from`` (the distribution that has it) and ``what`` it is."""


_SHOWN_OF_MANY = 16


class Kind(StrEnum):
    """A kind of name that can be listed."""

    AGENTS = "agents"
    ENVIRONMENTS = "environments"
    PRESETS = "presets"
    NETWORKS = "networks"
    EXPLORATIONS = "explorations"
    STEP_PROCESSORS = "step-processors"
    REPLAYS = "replays"
    RECORDERS = "recorders"


_TYPED = {
    Kind.AGENTS: "--agent NAME",
    Kind.ENVIRONMENTS: "--env NAME",
    Kind.PRESETS: "used by --agent and --env together",
    Kind.NETWORKS: "agent.network=NAME",
    Kind.EXPLORATIONS: "agent.exploration.kind=NAME",
    Kind.STEP_PROCESSORS: "actors.step_processor=NAME",
    Kind.REPLAYS: "replay.name=NAME",
    Kind.RECORDERS: "'learner.recorders=[\"NAME\"]'",
}
"""The option or key with which a name of each kind is given."""


@speaking_alone()
def list_names(
    kind: Annotated[
        Kind | None,
        typer.Argument(
            metavar="KIND",
            help="List only this kind. [all]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one object per line.")] = False,
) -> None:
    """List agents, environments, presets and other names. Those of installed packages, too.

    Runs are listed by `vedette runs`.

    \b
    vedette list
    vedette list environments
    vedette list --json | jq 'select(.kind == "recorders")'
    """
    for number, one in enumerate([kind] if kind else Kind):
        rows = list(_rows(one))
        if as_json:
            for row in rows:
                write(json.dumps({"kind": one.value, **row}))
            continue
        write(f"{chr(10) if number else ''}{one.value}: {_TYPED[one]}")
        _print_rows(rows, None if kind else _SHOWN_OF_MANY, one)


def _print_rows(rows: list[Row], most: int | None, kind: Kind) -> None:
    shown = rows[:most]
    width = max((len(row["name"]) for row in shown), default=0)
    for row in shown:
        parts = ["" if row["from"] == "vedette" else row["from"], row["what"]]
        line = f"  {row['name']:<{width}}  {': '.join(filter(None, parts))}"
        if writes_to_terminal():
            columns = max(40, shutil.get_terminal_size().columns)
            line = textwrap.fill(line, columns, subsequent_indent=" " * (width + 4))
        write(line)
    if len(rows) > len(shown):
        write(f"  and {len(rows) - len(shown)} more: vedette list {kind.value}")


def _rows(kind: Kind) -> Iterator[Row]:
    """The names of a kind."""
    from vedette_services.config.plugins import part_names
    from vedette_services.config.presets import describe_preset, preset_names

    if kind is Kind.ENVIRONMENTS:
        yield from _environments(preset_names())
    elif kind is Kind.PRESETS:
        for name in preset_names():
            yield {"name": name, "from": "vedette", "what": describe_preset(name)}
    else:
        for part in part_names(f"vedette.{kind.value.replace('-', '_')}"):
            yield {"name": part.name, "from": part.origin, "what": part.what}


def _environments(presets: list[str]) -> Iterator[Row]:
    """Those with a preset, then the newest version of the others that Gymnasium has registered."""
    import gymnasium

    newest: dict[str, int] = {}
    for spec in gymnasium.registry.values():
        bare = _unversioned(spec.id)
        newest[bare] = max(_version(spec), newest.get(bare, -1))
    for name in complete_environments(""):
        own = name.replace("/", "_")
        registered = gymnasium.registry.get(name)
        agents = [preset.partition("-")[0] for preset in presets if preset.endswith(f"-{own}")]
        if agents:
            yield {"name": name, "from": "vedette", "what": f"preset for {', '.join(agents)}"}
        elif registered is not None and _version(registered) == newest[_unversioned(name)]:
            made_by = registered.entry_point
            module = made_by if isinstance(made_by, str) else getattr(made_by, "__module__", "-")
            yield {"name": name, "from": module.partition(".")[0], "what": ""}


def _unversioned(name: str) -> str:
    return name.rpartition("-v")[0] or name


def _version(spec: EnvSpec) -> int:
    return -1 if spec.version is None else spec.version
