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
Seconds = Annotated[float, typer.Option(min=0.5, max=600.0, metavar="S", help="Of a round.")]
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
    frames: Annotated[
        bool,
        typer.Option("--frames", help="Atari's stacks, each frame stored once, beside whole ones."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Insert and sample, uniform and prioritized, beside plain numpy arrays.

    \b
    vedette bench replay
    vedette bench replay --dir /dev/shm --json
    vedette bench replay --frames --rounds 11 --capacity 10000
    """
    if frames:
        from vedette_services.bench.frames import FramesBench

        stacked = FramesBench(capacity=capacity, rounds=rounds, directory=directory).run()
        say(stacked, as_json=as_json, lines=frames_lines)
        return
    from vedette_services.bench.replay import ReplayBench

    found = ReplayBench(capacity=capacity, rounds=rounds, directory=directory).run()
    say(found, as_json=as_json, lines=replay_lines)


@app.command()
def wire(
    rounds: Rounds = 3,
    seconds: Seconds = 4.0,
    atari: Annotated[
        bool, typer.Option("--atari", help="32 transitions of 4 x 84 x 84 bytes a batch.")
    ] = False,
    costs: Annotated[
        bool,
        typer.Option("--costs", help="With and without acks, with and without keys, instead."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Two producers into the replay, with acks, window and checks, beside plain PUSH/PULL.

    \b
    vedette bench wire
    vedette bench wire --atari --json
    vedette bench wire --costs               what exactly-once and what encryption cost
    """
    from vedette_services.bench.wire import ATARI, SMALL, WireBench

    payload, capacity = (ATARI, 4_000) if atari else (SMALL, 100_000)
    if costs:
        from vedette_services.bench.wire_costs import WireCosts

        measured = WireCosts(payload, capacity, seconds=seconds, rounds=rounds).run()
        say(measured, as_json=as_json, lines=wire_cost_lines)
        return
    found = WireBench(payload, capacity, seconds=seconds, rounds=rounds).run()
    say(found, as_json=as_json, lines=wire_lines)


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
    """Optimization steps a second while actors push, beside a hand-written torch loop; and what a
    checkpoint costs them while it is written, and a model of 1 MB published after every one.

    \b
    vedette bench learner
    vedette bench learner --batch-size 64 --hidden 128
    """
    from vedette_services.bench.learner import LearnerBench

    found = LearnerBench(batch_size, hidden, double, actors, seconds, rounds).run()
    say(found, as_json=as_json, lines=learner_lines)


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
    from vedette_services.bench.fleet import FleetBench

    form = "vector_entry_point" if vectorized else "loop"
    found = FleetBench(env, actors, envs, form, seconds, rounds).run()
    say(found, as_json=as_json, lines=fleet_lines)


@app.command()
def models(
    megabytes: Annotated[float, typer.Option(min=0.001, max=4000.0, help="Of a model.")] = 1.0,
    actors: Annotated[int, typer.Option(min=1, help="Processes.")] = 8,
    interval: Annotated[
        float, typer.Option(min=0.001, max=60.0, metavar="S", help="From sync to sync.")
    ] = 0.1,
    step: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="S", help="What an environment's step takes.")
    ] = 0.001,
    seconds: Seconds = 10.0,
    as_json: AsJson = False,
) -> None:
    """From a sync to the last actor that acts on the model, beside the bare copies that needs.

    \b
    vedette bench models
    vedette bench models --megabytes 100 --interval 3 --seconds 40
    """
    from vedette_services.bench.models import ModelsBench

    size = int(megabytes * (1 << 20))
    found = ModelsBench(size, actors, interval, step, seconds).run()
    say(found, as_json=as_json, lines=model_lines)


@app.command()
def managers(
    rounds: Rounds = 3,
    seconds: Seconds = 5.0,
    few: Annotated[int, typer.Option(min=1, max=1000, help="Managers.")] = 1,
    many: Annotated[int, typer.Option(min=1, max=1000, help="Managers, beside them.")] = 64,
    rate: Annotated[float, typer.Option(min=1.0, help="Samples/s of all together.")] = 200_000.0,
    as_json: AsJson = False,
) -> None:
    """What a sample costs the gateway with few managers and with many, at one total rate.

    \b
    vedette bench managers
    vedette bench managers --many 256 --rate 100000
    """
    from vedette_services.bench.managers import ManagersBench

    found = ManagersBench(few, many, rate, seconds, rounds).run()
    say(found, as_json=as_json, lines=manager_lines)


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


def frames_lines(found: dict[str, Any]) -> list[str]:
    """The figures of `bench replay --frames` for people."""
    said = [
        f"capacity {found['capacity']:,}, stacks of four 84 x 84 images, batches of "
        f"{found['rows_in']} in and {found['rows_out']} out, {found['rounds']} rounds; "
        "bytes a transition, rows/s"
    ]
    for name, what in (("plain", "stacks whole"), ("once", "frames once")):
        stored, sent = found["stored_bytes_per_row"][name], found["sent_bytes_per_row"][name]
        million = f"a million of them {found['million_rows_bytes'][name] / 1e9:.2f} GB"
        said.append(f"{what}  stored {stored:>8,.0f}   sent {sent:>8,.0f}   {million}")
    for group in ("insert", "sample"):
        for name, what in (("plain", "stacks whole"), ("once", "frames once")):
            said.append(
                f"{group:<8}{what}  {_range(found[group][f'{name}_rows_per_s'], '{:>10,.0f}')}"
            )
        times = found[group]["once_to_plain_ratio"]
        said.append(f"{'':<8}frames once beside stacks whole {_range(times, '{:.2f}')}")
    return said


def wire_lines(found: dict[str, Any]) -> list[str]:
    """The figures of `bench wire` for people."""
    said = [
        f"batches of {found['rows']} transitions, {found['batch_bytes']:,} bytes; transitions/s",
        f"vedette          {_range(found['transitions_per_s'], '{:>12,.0f}')}",
        f"plain PUSH/PULL  {_range(found['bare_transitions_per_s'], '{:>12,.0f}')}",
        f"ratio            {_range(found['ratio'], '{:>12.2f}')}",
        "processor time of a batch, of all who have to do with it; µs",
        f"vedette          {_range(found['processor_us_per_batch'], '{:>12.1f}')}",
        f"plain PUSH/PULL  {_range(found['bare_processor_us_per_batch'], '{:>12.1f}')}",
        f"ratio            {_range(found['processor_ratio'], '{:>12.2f}')}",
    ]
    if "frames_once_ratio" in found:
        rate, cost = "frames_once_transitions_per_s", "frames_once_processor_us_per_batch"
        said += [
            "vedette as its actors send stacks, each frame of a batch once; plain PUSH/PULL whole",
            f"transitions/s    {_range(found[rate], '{:>12,.0f}')}",
            f"ratio            {_range(found['frames_once_ratio'], '{:>12.2f}')}",
            f"µs of a batch    {_range(found[cost], '{:>12.1f}')}",
        ]
    return said


def wire_cost_lines(found: dict[str, Any]) -> list[str]:
    """The figures of `bench wire --costs` for people."""
    said = [
        f"batches of {found['rows']} transitions, {found['batch_bytes']:,} bytes, "
        f"{found['rounds']} rounds; transitions/s"
    ]
    rates, ratios = found["transitions_per_s"], found["ratios"]
    said += [f"{kind.replace('_', ', '):<22}{_range(rates[kind], '{:>12,.0f}')}" for kind in rates]
    said += [f"{name.replace('_', ' '):<22}{_range(ratios[name], '{:>12.2f}')}" for name in ratios]
    return said


def learner_lines(found: dict[str, Any]) -> list[str]:
    """The figures of `bench learner` for people."""
    where = ", the trainer on a core of its own" if found["own_core"] else ""
    return [
        f"{'Double' if found['double'] else 'plain'} DQN, batches of {found['batch_size']}, two "
        f"hidden layers of {found['hidden']}, {found['actors']} actors beside it{where}; "
        "optimization steps/s",
        f"vedette           {_range(found['opt_steps_per_s'], '{:>12,.0f}')}",
        f"written by hand   {_range(found['handwritten_opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {_range(found['ratio'], '{:>12.2f}')}",
        "processor time of a step, ms",
        f"vedette           {_range(found['processor_ms_per_opt'], '{:>12.2f}')}",
        f"written by hand   {_range(found['handwritten_processor_ms_per_opt'], '{:>12.2f}')}",
        f"ratio             {_range(found['processor_ratio'], '{:>12.2f}')}",
        *_checkpoint_lines(found["checkpoint"]),
        *_publishing_lines(found["publishing"]),
    ]


def _checkpoint_lines(found: dict[str, Any]) -> list[str]:
    return [
        f"the loop alone, while a checkpoint of {found['checkpoint_bytes']:,} bytes is written and "
        "between two of them; optimization steps/s",
        f"writing           {_range(found['opt_steps_per_s_while_writing'], '{:>12,.0f}')}",
        f"between           {_range(found['opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {_range(found['ratio'], '{:>12.2f}')}",
        f"a write lasts, ms {_range(found['checkpoint_ms'], '{:>12.1f}')}",
        f"and costs, ms     {_range(found['cost_ms'], '{:>12.2f}')}",
        f"which is steps    {_range(found['cost_opt_steps'], '{:>12.2f}')}",
    ]


def _publishing_lines(found: dict[str, Any]) -> list[str]:
    return [
        f"the loop alone, publishing a model of {found['model_bytes']:,} bytes after every step "
        "and not; optimization steps/s",
        f"publishing        {_range(found['opt_steps_per_s_publishing'], '{:>12,.0f}')}",
        f"not               {_range(found['opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {_range(found['ratio'], '{:>12.3f}')}",
        f"a call takes, ms  {_range(found['call_ms'], '{:>12.2f}')}",
        f"a model costs, ms {_range(found['cost_ms'], '{:>12.2f}')}",
    ]


def fleet_lines(found: dict[str, Any]) -> list[str]:
    """The figures of `bench fleet` for people."""
    return [
        f"{found['actors']} actors of {found['envs_per_actor']} {found['env']} "
        f"({found['vectorization']}), counted in the replay; environment steps/s",
        _range(found["steps_per_s"], "{:>12,.0f}"),
        f"an actor's resident memory: {found['actor_resident_bytes'] / 1e6:.0f} MB",
    ]


def model_lines(found: dict[str, Any]) -> list[str]:
    """The figures of `bench models` for people."""
    return [
        f"{found['model_bytes']:,} bytes to {found['actors']} actors, every "
        f"{found['interval_s']:g} s; {found['published']} published, "
        f"{found['everywhere']} acted on by all; ms",
        f"the loop waits     {_range(found['loop_waits_ms'], '{:>10,.2f}')}",
        f"one copy takes it  {_range(found['loop_copies_ms'], '{:>10,.2f}')}",
        f"to the last actor  {_range(found['delay_ms'], '{:>10,.1f}')}",
        f"bare copies        {_range(found['bare_copies_ms'], '{:>10,.1f}')}",
        f"ratio              {_range(found['ratio'], '{:>10.1f}')}",
    ]


def manager_lines(found: dict[str, Any]) -> list[str]:
    """The figures of `bench managers` for people."""
    said = [f"{found['samples_per_s']:,.0f} samples/s of all managers together"]
    for count, figures in found["managers"].items():
        said += [
            f"{count:>4} managers: inserted/s  {_range(figures['inserted_per_s'], '{:>9,.0f}')}",
            f"      gateway, µs a sample{_range(figures['gateway_us_per_sample'], '{:>9.2f}')}",
            f"      status, ms          {_range(figures['status_ms'], '{:>9.1f}')}",
            f"      lost {figures['lost']}, duplicates {figures['duplicates']}",
        ]
    said.append(f"growth of the cost        {_range(found['growth'], '{:>9.2f}')}")
    return said


def _range(spread: dict[str, float], form: str) -> str:
    median, least, most = (form.format(spread[key]) for key in ("median", "min", "max"))
    return f"{median} ({least.strip()} to {most.strip()})"
