"""``vedette bench``: commands that measure this installation on this machine.

Each imports its benchmark when it runs, and prints lines for people, or one object with ``--json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vedette_rl.number_format import format_spread

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure this installation on this machine: our rates beside what bounds them, in turn.",
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Seconds = Annotated[float, typer.Option(min=0.5, max=600.0, metavar="S", help="Of a round.")]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="Everything is measured in each.")]
Atari = Annotated[
    bool, typer.Option("--atari", help="32 transitions of 4 x 84 x 84 bytes a batch.")
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Where the ring on disk is made. [for temporary files]",
        file_okay=False,
        exists=True,
    ),
]


@app.command()
def replay(
    rounds: Rounds = 31,
    capacity: Annotated[int, typer.Option(min=1000, help="Rows.")] = 100_000,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Insert and sample, uniform and prioritized, beside plain numpy arrays.

    \b
    vedette bench replay
    vedette bench replay --dir /dev/shm --json
    """
    from vedette.bench.replay import ReplayBench

    found = ReplayBench(capacity=capacity, rounds=rounds, directory=directory).run()
    show_figures(found, as_json=as_json, lines=replay_lines)


@app.command()
def wire(
    rounds: Rounds = 3,
    seconds: Seconds = 4.0,
    atari: Atari = False,
    as_json: AsJson = False,
) -> None:
    """Two producers into the replay, with acks, window and checks, beside plain PUSH/PULL.

    \b
    vedette bench wire
    vedette bench wire --atari --json
    """
    from vedette.bench.wire import ATARI, SMALL, WireBench

    payload, capacity = (ATARI, 4_000) if atari else (SMALL, 100_000)
    found = WireBench(payload, capacity, seconds=seconds, rounds=rounds).run()
    show_figures(found, as_json=as_json, lines=wire_lines)


@app.command()
def learner(
    rounds: Rounds = 3,
    seconds: Seconds = 5.0,
    actors: Annotated[int, typer.Option(min=1, help="That push meanwhile.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples.")] = 256,
    hidden: Annotated[int, typer.Option(min=1, help="Units of two hidden layers.")] = 256,
    double: Annotated[bool, typer.Option("--double/--single", help="Double DQN or plain.")] = True,
    as_json: AsJson = False,
) -> None:
    """Optimization steps a second while actors push, beside a hand-written torch loop.

    \b
    vedette bench learner
    vedette bench learner --batch-size 64 --hidden 128
    """
    from vedette.bench.learner import LearnerBench

    found = LearnerBench(batch_size, hidden, double, actors, seconds, rounds).run()
    show_figures(found, as_json=as_json, lines=learner_lines)


@app.command()
def fleet(
    rounds: Rounds = 3,
    seconds: Seconds = 5.0,
    env: Annotated[str, typer.Option(metavar="ID", help="Environment.")] = "CartPole-v1",
    actors: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    envs: Annotated[int, typer.Option(min=1, help="Environments of each.")] = 16,
    vectorized: Annotated[
        bool, typer.Option("--vectorized", help="By the environment's own vector form.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Environment steps a second that actors here bring into the replay.

    \b
    vedette bench fleet
    vedette bench fleet --actors 2 --envs 64 --vectorized
    """
    from vedette.bench.daemons import FleetBench

    form = "vector_entry_point" if vectorized else "loop"
    found = FleetBench(env, actors, envs, form, seconds, rounds).run()
    show_figures(found, as_json=as_json, lines=fleet_lines)


def show_figures(found: dict[str, Any], *, as_json: bool, lines: Any) -> None:
    """Print the figures of a benchmark."""
    for line in [json.dumps(found)] if as_json else lines(found):
        typer.echo(line)


def replay_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `bench replay` for people."""
    message = [
        f"capacity {found['capacity']:,}, rows of {found['row_bytes']} bytes, batches of "
        f"{found['rows_in']} in and {found['rows_out']} out, {found['rounds']} rounds; "
        "rows/s, and the ratio to plain numpy's (uniform draws, for prioritized ones)"
    ]
    for group in ("insert", "sample", "prioritized"):
        for name in ("numpy", "memory", "mapped"):
            rate = found[group][f"{name}_rows_per_s"]
            if group == "prioritized" and name == "numpy":
                continue  # plain arrays have no priorities: the uniform draw is the bound
            compared = found[group].get(f"{name}_ratio")
            times = "" if compared is None else "   " + format_spread(compared, "{:.2f}")
            message.append(f"{group:<12}{name:<8}{format_spread(rate, '{:>12,.0f}')}{times}")
        beside = found[group]["mapped_to_memory_ratio"]
        message.append(f"{'':<12}mapped beside memory {format_spread(beside, '{:.2f}')}")
        if two := found[group].get("two_sources_to_one_ratio"):
            message.append(f"{'':<12}two sources beside one {format_spread(two, '{:.2f}')}")
    return message


def wire_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `bench wire` for people."""
    message = [
        f"batches of {found['rows']} transitions, {found['batch_bytes']:,} bytes; transitions/s",
        f"vedette          {format_spread(found['transitions_per_s'], '{:>12,.0f}')}",
        f"plain PUSH/PULL  {format_spread(found['bare_transitions_per_s'], '{:>12,.0f}')}",
        f"ratio            {format_spread(found['ratio'], '{:>12.2f}')}",
        "processor time of a batch, in all processes that handle it; µs",
        f"vedette          {format_spread(found['processor_us_per_batch'], '{:>12.1f}')}",
        f"plain PUSH/PULL  {format_spread(found['bare_processor_us_per_batch'], '{:>12.1f}')}",
        f"ratio            {format_spread(found['processor_ratio'], '{:>12.2f}')}",
    ]
    if "frames_once_ratio" in found:
        rate = "frames_once_transitions_per_s"
        cost = "frames_once_processor_us_per_batch"
        message += [
            "vedette as its actors send stacks, each frame of a batch once; plain PUSH/PULL whole",
            f"transitions/s    {format_spread(found[rate], '{:>12,.0f}')}",
            f"ratio            {format_spread(found['frames_once_ratio'], '{:>12.2f}')}",
            f"µs of a batch    {format_spread(found[cost], '{:>12.1f}')}",
        ]
    return message


def learner_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `bench learner` for people."""
    where = ", the trainer on a core of its own" if found["own_core"] else ""
    by_hand = found["handwritten_processor_ms_per_opt"]
    return [
        f"{'Double' if found['double'] else 'plain'} DQN, batches of {found['batch_size']}, two "
        f"hidden layers of {found['hidden']}, {found['actors']} actors beside it{where}; "
        "optimization steps/s",
        f"vedette           {format_spread(found['opt_steps_per_s'], '{:>12,.0f}')}",
        f"written by hand   {format_spread(found['handwritten_opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {format_spread(found['ratio'], '{:>12.2f}')}",
        "processor time of a step, ms",
        f"vedette           {format_spread(found['processor_ms_per_opt'], '{:>12.2f}')}",
        f"written by hand   {format_spread(by_hand, '{:>12.2f}')}",
        f"ratio             {format_spread(found['processor_ratio'], '{:>12.2f}')}",
    ]


def fleet_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `bench fleet` for people."""
    return [
        f"{found['actors']} actors of {found['envs_per_actor']} {found['env']} "
        f"({found['vectorization']}), counted in the replay; environment steps/s",
        format_spread(found["steps_per_s"], "{:>12,.0f}"),
        f"an actor's resident memory: {found['actor_resident_bytes'] / 1e6:.0f} MB",
    ]
