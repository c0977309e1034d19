"""Benchmarks of our own design decisions, as commands of ``scripts/bench/run``.

They are not part of the wheel; ``vedette bench`` has what users measure.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from bare_loop import SacBench
from checkpoints import CheckpointBench
from frames import FramesBench
from loops import LoopBench
from managers import ManagersBench
from models import ModelsBench
from own_loop import OwnLoopBench, RealTimeBench
from publishing import PublishingBench
from shapes import ShapesBench
from wire_costs import WireCosts

from vedette.bench.wire import ATARI, SMALL
from vedette.cli.bench import AsJson, Atari, Directory, Rounds, Seconds, show_figures
from vedette_rl.number_format import format_spread

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)

BatchSize = Annotated[int, typer.Option(min=1, help="Samples of an optimization step.")]


@app.command()
def frames(
    what: Annotated[
        str, typer.Option(help="atari, cameras, or a vector of that many numbers.")
    ] = "atari",
    rounds: Rounds = 31,
    capacity: Annotated[int, typer.Option(min=1000, help="Rows.")] = 100_000,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Observations stored once, beside the same stored whole.

    \b
    scripts/bench/run frames --rounds 11 --capacity 10000 --what cameras
    """
    found = FramesBench(capacity=capacity, rounds=rounds, directory=directory, what=what).run()
    show_figures(found, as_json=as_json, lines=frames_lines)


@app.command()
def costs(
    rounds: Rounds = 3,
    seconds: Seconds = 4.0,
    atari: Atari = False,
    as_json: AsJson = False,
) -> None:
    """The wire with and without acknowledgements, with and without keys."""
    payload, capacity = (ATARI, 4_000) if atari else (SMALL, 100_000)
    found = WireCosts(payload, capacity, seconds=seconds, rounds=rounds).run()
    show_figures(found, as_json=as_json, lines=wire_cost_lines)


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
    scripts/bench/run models
    scripts/bench/run models --megabytes 100 --interval 3 --seconds 40
    """
    size = int(megabytes * (1 << 20))
    found = ModelsBench(size, actors, interval, step, seconds).run()
    show_figures(found, as_json=as_json, lines=model_lines)


@app.command()
def managers(
    sizes: Annotated[list[int] | None, typer.Argument(min=1, max=4096, help="1 and 64.")] = None,
    rounds: Rounds = 3,
    seconds: Seconds = 5.0,
    rate: Annotated[float, typer.Option(min=1.0, help="Samples/s of all together.")] = 200_000.0,
    as_json: AsJson = False,
) -> None:
    """The gateway's cost of a sample for several numbers of managers, at one total rate.

    \b
    scripts/bench/run managers
    scripts/bench/run managers 10 100 1000 2000 --rounds 1
    """
    found = ManagersBench(tuple(sizes or (1, 64)), rate, seconds, rounds).run()
    show_figures(found, as_json=as_json, lines=manager_lines)


@app.command()
def checkpoints(
    batch_size: BatchSize = 256,
    hidden: Annotated[int, typer.Option(min=1, help="Units of two hidden layers.")] = 256,
    rounds: Rounds = 25,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """The training loop while a checkpoint is written, beside the same loop between two of them.

    \b
    scripts/bench/run checkpoints
    scripts/bench/run checkpoints --batch-size 64 --hidden 128
    """
    found = CheckpointBench(batch_size, hidden, rounds=rounds, directory=directory).run()
    show_figures(found, as_json=as_json, lines=checkpoint_lines)


@app.command()
def publishing(
    batch_size: BatchSize = 256,
    hidden: Annotated[
        int, typer.Option(min=1, help="Units of two hidden layers; 500 make a model of 1 MB.")
    ] = 500,
    rounds: Rounds = 7,
    as_json: AsJson = False,
) -> None:
    """The training loop that publishes a model after every step, beside the same loop without.

    \b
    scripts/bench/run publishing
    scripts/bench/run publishing --batch-size 64
    """
    found = PublishingBench(batch_size, hidden, rounds=rounds).run()
    show_figures(found, as_json=as_json, lines=publishing_lines)


@app.command()
def sac(
    rounds: Annotated[int, typer.Option(min=1, help="Blocks of twelve steps of each.")] = 40,
    as_json: AsJson = False,
) -> None:
    """SAC's optimization step beside Stable-Baselines3's, which `scripts/setup_sb3` installs."""
    show_figures(SacBench(rounds).run(), as_json=as_json, lines=sac_lines)


@app.command()
def loops(rounds: Rounds = 3, seconds: Seconds = 4.0, as_json: AsJson = False) -> None:
    """`vedette.Replay` under a loop that draws without pause, beside a buffer in its memory.

    \b
    scripts/bench/run loops --rounds 5
    """
    found = LoopBench(seconds=seconds, rounds=rounds).run()
    show_figures(found, as_json=as_json, lines=loop_lines)


@app.command()
def own_loop(
    env: Annotated[str, typer.Option(help="Of Gymnasium.")] = "CartPole-v1",
    envs: Annotated[int, typer.Option(min=1, help="How many of them.")] = 8,
    rows: Annotated[int, typer.Option(min=1, help="Of a batch.")] = 64,
    rounds: Rounds = 30,
    seconds: Seconds = 1.0,
    as_json: AsJson = False,
) -> None:
    """vedette.Actor in a loop of its own, beside an actor process, in turn on one core.

    \b
    scripts/bench/run own-loop
    scripts/bench/run own-loop --env Hopper-v5
    """
    found = OwnLoopBench(env, envs, rows, seconds, rounds).run()
    show_figures(found, as_json=as_json, lines=own_loop_lines)


@app.command()
def real_time(
    kills: Annotated[int, typer.Option(min=0, help="Of the learner.")] = 2,
    seconds: Annotated[float, typer.Option(min=1.0, help="Before, between, after.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """vedette.Actor in a loop of 50 Hz beside a learner that is killed and comes back."""
    found = RealTimeBench(kills, seconds).run()
    show_figures(found, as_json=as_json, lines=real_time_lines)


@app.command()
def shapes(
    sleep: Annotated[
        float,
        typer.Option(min=0.0, max=10.0, metavar="S", help="Of an environment's step."),
    ] = 0.02,
    seconds: Seconds = 5.0,
    rounds: Rounds = 3,
    as_json: AsJson = False,
) -> None:
    """The default start with a slow simulator, beside shapes chosen by hand, of 16 environments.

    \b
    scripts/bench/run shapes
    scripts/bench/run shapes --sleep 0.2
    """
    found = ShapesBench(sleep, seconds, rounds).run()
    show_figures(found, as_json=as_json, lines=shapes_lines)


def frames_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `frames` for people."""
    said = [
        f"{found['what']}: capacity {found['capacity']:,}, batches of "
        f"{found['rows_in']} in and {found['rows_out']} out, {found['rounds']} rounds; "
        "bytes a transition, rows/s"
    ]
    for name, what in (("plain", "whole"), ("once", "once ")):
        stored, sent = found["stored_bytes_per_row"][name], found["sent_bytes_per_row"][name]
        million = f"a million of them {found['million_rows_bytes'][name] / 1e9:.2f} GB"
        said.append(f"{what}  stored {stored:>8,.0f}   sent {sent:>8,.0f}   {million}")
    for group in ("insert", "sample"):
        for name, what in (("plain", "whole"), ("once", "once ")):
            rate = found[group][f"{name}_rows_per_s"]
            said.append(f"{group:<8}{what}  {format_spread(rate, '{:>10,.0f}')}")
        times = found[group]["once_to_plain_ratio"]
        said.append(f"{'':<8}once beside whole {format_spread(times, '{:.2f}')}")
    return said


def loop_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `loops` for people."""
    said = [
        f"batches of {found['rows_in']} in and {found['rows_out']} out, {found['rounds']} rounds; "
        "rows/s"
    ]
    for what in ("inserted", "drawn"):
        rates = found[f"{what}_rows_per_s"]
        said += [
            f"{what:<9}{name:<8}{format_spread(rates[name], '{:>12,.0f}')}"
            for name in ("vedette", "plain")
        ]
        said.append(f"{what:<9}ratio   {format_spread(rates['ratio'], '{:>12.2f}')}")
    return said


def wire_cost_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `costs` for people."""
    said = [
        f"batches of {found['rows']} transitions, {found['batch_bytes']:,} bytes, "
        f"{found['rounds']} rounds; transitions/s"
    ]
    rates, ratios = found["transitions_per_s"], found["ratios"]
    said += [
        f"{kind.replace('_', ', '):<22}{format_spread(rates[kind], '{:>12,.0f}')}" for kind in rates
    ]
    said += [
        f"{name.replace('_', ' '):<22}{format_spread(ratios[name], '{:>12.2f}')}" for name in ratios
    ]
    return said


def model_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `models` for people."""
    return [
        f"{found['model_bytes']:,} bytes to {found['actors']} actors, every "
        f"{found['interval_s']:g} s; {found['published']} published, "
        f"{found['everywhere']} acted on by all; ms",
        f"the loop waits     {format_spread(found['loop_waits_ms'], '{:>10,.2f}')}",
        f"one copy takes it  {format_spread(found['loop_copies_ms'], '{:>10,.2f}')}",
        f"to the last actor  {format_spread(found['delay_ms'], '{:>10,.1f}')}",
        f"bare copies        {format_spread(found['bare_copies_ms'], '{:>10,.1f}')}",
        f"ratio              {format_spread(found['ratio'], '{:>10.1f}')}",
    ]


def own_loop_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `own-loop` for people."""
    said = [f"{found['envs']} of {found['env']}, batches of {found['rows']}"]
    for unit, ratio in (("s", "ratio"), ("processor_s", "processor_ratio")):
        own, process = found[f"own_steps_per_{unit}"], found[f"process_steps_per_{unit}"]
        said += [
            "steps a second" if unit == "s" else "steps a second of processor time",
            f"own loop          {format_spread(own, '{:>12,.0f}')}",
            f"actor process     {format_spread(process, '{:>12,.0f}')}",
            f"ratio             {format_spread(found[ratio], '{:>12.3f}')}",
        ]
    return said


def real_time_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `real-time` for people."""
    return [
        f"{found['steps']} steps at 50 Hz, learner killed {found['kills']} times: "
        f"{found['missed']} periods missed, longest act {found['longest_act_ms']:.1f} ms, "
        f"{found['dropped']} samples dropped"
    ]


def shapes_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `shapes` for people."""
    return [
        f"{found['said']}; actors x environments, environment steps/s",
        *(
            f"{name:<18}{format_spread(rate, '{:>8,.0f}')}"
            for name, rate in found["steps_per_s"].items()
        ),
        f"default beside {found['best_by_hand']}, the best by hand: {found['default_to_best']:.2f}",
    ]


def manager_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `managers` for people."""
    said = [f"{found['samples_per_s']:,.0f} samples/s of all managers together"]
    for count, figures in found["managers"].items():
        inserted, cost = figures["inserted_per_s"], figures["gateway_us_per_sample"]
        said += [
            f"{count:>4} managers: inserted/s  {format_spread(inserted, '{:>9,.0f}')}",
            f"      gateway, µs a sample{format_spread(cost, '{:>9.2f}')}",
            f"      gateway, cores      {format_spread(figures['gateway_cores'], '{:>9.2f}')}",
            f"      status, ms          {format_spread(figures['status_ms'], '{:>9.1f}')}",
            f"      {figures['descriptors']} descriptors, {figures['resident_bytes'] >> 20} MiB",
            f"      lost {figures['lost']}, duplicates {figures['duplicates']}",
        ]
    said.append(f"growth of the cost        {format_spread(found['growth'], '{:>9.2f}')}")
    return said


def checkpoint_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `checkpoints` for people."""
    return [
        f"the loop alone, while a checkpoint of {found['checkpoint_bytes']:,} bytes is written and "
        "between two of them; optimization steps/s",
        f"writing           {format_spread(found['opt_steps_per_s_while_writing'], '{:>12,.0f}')}",
        f"between           {format_spread(found['opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {format_spread(found['ratio'], '{:>12.2f}')}",
        f"a write lasts, ms {format_spread(found['checkpoint_ms'], '{:>12.1f}')}",
        f"and costs, ms     {format_spread(found['cost_ms'], '{:>12.2f}')}",
        f"which is steps    {format_spread(found['cost_opt_steps'], '{:>12.2f}')}",
    ]


def publishing_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `publishing` for people."""
    return [
        f"the loop alone, publishing a model of {found['model_bytes']:,} bytes after every step "
        "and not; optimization steps/s",
        f"publishing        {format_spread(found['opt_steps_per_s_publishing'], '{:>12,.0f}')}",
        f"not               {format_spread(found['opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {format_spread(found['ratio'], '{:>12.3f}')}",
        f"a call takes, ms  {format_spread(found['call_ms'], '{:>12.2f}')}",
        f"a model costs, ms {format_spread(found['cost_ms'], '{:>12.2f}')}",
    ]


def sac_lines(found: dict[str, Any]) -> list[str]:
    """Format the figures of `sac` for people."""
    return ["SAC, batches of 256, two layers of 256; milliseconds of a step"] + [
        f"{figure:34} {side:20} {format_spread(spread, '{:>8.2f}')}"
        for figure, sides in found.items()
        for side, spread in sides.items()
    ]


if __name__ == "__main__":
    app()
