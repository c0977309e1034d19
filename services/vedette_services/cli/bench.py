"""``vedette bench``: measure this installation on this machine.

A part of it is a command below; it imports what it measures when it runs, prints lines for people,
and with ``--json`` one object.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure this installation on this machine: our rates beside what bounds them, in turn.",
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="Everything is measured in each.")]


@app.command()
def replay(
    rounds: Rounds = 31,
    capacity: Annotated[int, typer.Option(min=1000, help="Rows.")] = 100_000,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where the ring on disk is made. [for temporary files]",
            show_default=False,
            file_okay=False,
            exists=True,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Insert and sample, uniform and prioritized, beside plain numpy arrays.

    \b
    vedette bench replay
    vedette bench replay --dir /dev/shm --json
    """
    from vedette_services.bench.replay import ReplayBench

    found = ReplayBench(capacity=capacity, rounds=rounds, directory=directory).run()
    say(found, as_json=as_json, lines=replay_lines)


def say(found: dict[str, Any], *, as_json: bool, lines: Any) -> None:
    """Print a bench's figures."""
    for line in [json.dumps(found)] if as_json else lines(found):
        typer.echo(line)


def replay_lines(found: dict[str, Any]) -> list[str]:
    """The figures of `bench replay` for people."""
    said = [
        f"capacity {found['capacity']:,}, rows of {found['row_bytes']} bytes, batches of "
        f"{found['rows_in']} in and {found['rows_out']} out, {found['rounds']} rounds; "
        "rows/s, and the ratio to plain numpy's (uniform draws, for prioritized ones)"
    ]
    for group in ("insert", "sample", "prioritized"):
        for name in ("numpy", "memory", "mapped"):
            rate = found[group][f"{name}_rows_per_s"]
            if group == "prioritized" and name == "numpy":
                continue  # plain arrays know no priorities: the uniform draw is the bound
            compared = found[group].get(f"{name}_ratio")
            times = "" if compared is None else "   " + _range(compared, "{:.2f}")
            said.append(f"{group:<12}{name:<8}{_range(rate, '{:>12,.0f}')}{times}")
        beside = found[group]["mapped_to_memory_ratio"]
        said.append(f"{'':<12}mapped beside memory {_range(beside, '{:.2f}')}")
    return said


def _range(spread: dict[str, float], form: str) -> str:
    median, least, most = (form.format(spread[key]) for key in ("median", "min", "max"))
    return f"{median} ({least.strip()} to {most.strip()})"
