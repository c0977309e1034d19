"""The commands of ``scripts/bench/run``: benchmarks of Vedette on this machine.

Each imports its benchmark when it runs, and prints lines for people, or one object with ``--json``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bench.lines import (
    checkpoint_lines,
    custom_loop_lines,
    fleet_lines,
    frames_lines,
    journal_lines,
    learner_lines,
    loop_lines,
    manager_lines,
    model_lines,
    outbox_lines,
    page_lines,
    peer_lines,
    publishing_lines,
    real_time_lines,
    remote_replay_lines,
    replay_lines,
    replay_peer_lines,
    sac_lines,
    sb3_lines,
    session_lines,
    shapes_lines,
    shift_lines,
    snapshot_lines,
    wire_cost_lines,
    wire_lines,
)
from vedette.cli.app import execute

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Measure this machine: our rates beside what bounds them, or beside others', in turn.",
    epilog="One more is `gpu`, the learner on its device: `scripts/bench/run gpu --help`.",
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
Table = Literal[
    "wire", "wire-atari", "collect", "collect-vectorized", "learner", "appo", "appo-one-pass"
]
SolvedEnv = Literal["CartPole-v1", "Pendulum-v1"]


class ReplayPeer(StrEnum):
    """Libraries of `replay-peers`."""

    CPPRB = "cpprb"
    STABLE_BASELINES3 = "stable_baselines3"
    TORCHRL = "torchrl"
    TIANSHOU = "tianshou"


BatchSize = Annotated[int, typer.Option(min=1, help="Samples of an optimization step.")]
Hidden = Annotated[int, typer.Option(min=1, help="Units of two hidden layers.")]


@app.command()
def replay(
    rounds: Rounds = 31,
    capacity: Annotated[int, typer.Option(min=1000, help="Rows.")] = 100_000,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Insert and sample, uniform and prioritized, beside plain numpy arrays.

    \b
    scripts/bench/run replay
    scripts/bench/run replay --dir /dev/shm --json
    """
    from bench.replay import ReplayBench

    figures = ReplayBench(capacity=capacity, rounds=rounds, directory=directory).run()
    show_figures(figures, as_json=as_json, lines=replay_lines)


@app.command()
def wire(
    rounds: Rounds = 3,
    seconds: Seconds = 4.0,
    atari: Atari = False,
    as_json: AsJson = False,
) -> None:
    """Two producers into the replay, with acks, window and checks, beside plain PUSH/PULL.

    \b
    scripts/bench/run wire
    scripts/bench/run wire --atari --json
    """
    from bench.wire import WireBench, load_of

    figures = WireBench(*load_of(atari=atari), seconds=seconds, rounds=rounds).run()
    show_figures(figures, as_json=as_json, lines=wire_lines)


@app.command()
def learner(
    rounds: Rounds = 3,
    seconds: Seconds = 5.0,
    actors: Annotated[int, typer.Option(min=1, help="That push meanwhile.")] = 1,
    batch_size: BatchSize = 256,
    hidden: Hidden = 256,
    double: Annotated[bool, typer.Option("--double/--single", help="Double DQN or plain.")] = True,
    as_json: AsJson = False,
) -> None:
    """Optimization steps a second while actors push, beside a hand-written torch loop.

    \b
    scripts/bench/run learner
    scripts/bench/run learner --batch-size 64 --hidden 128
    """
    from bench.learner import LearnerBench

    figures = LearnerBench(batch_size, hidden, double, actors, seconds, rounds).run()
    show_figures(figures, as_json=as_json, lines=learner_lines)


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
    passes: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="APPO learns meanwhile: N passes over 1,024 steps."),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Environment steps a second that actors here bring into the replay.

    \b
    scripts/bench/run fleet
    scripts/bench/run fleet --actors 2 --envs 64 --vectorized
    scripts/bench/run fleet --passes 4
    """
    from bench.fleet import FleetBench

    form = "vector_entry_point" if vectorized else "loop"
    figures = FleetBench(env, actors, envs, form, passes, seconds, rounds).run()
    show_figures(figures, as_json=as_json, lines=fleet_lines)


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
    from bench.frames import FramesBench

    figures = FramesBench(capacity=capacity, rounds=rounds, directory=directory, what=what).run()
    show_figures(figures, as_json=as_json, lines=frames_lines)


@app.command()
def costs(
    rounds: Rounds = 3,
    seconds: Seconds = 4.0,
    atari: Atari = False,
    as_json: AsJson = False,
) -> None:
    """The wire with and without acknowledgements, with and without keys."""
    from bench.wire import load_of
    from bench.wire_costs import WireCosts

    figures = WireCosts(*load_of(atari=atari), seconds=seconds, rounds=rounds).run()
    show_figures(figures, as_json=as_json, lines=wire_cost_lines)


@app.command()
def outbox(
    rounds: Rounds = 3,
    seconds: Seconds = 4.0,
    atari: Atari = False,
    rate: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="Batches a second of each producer.")
    ] = math.inf,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Managers with an outbox, by the interval of its syncs, beside managers without."""
    from bench.outbox import OutboxBench
    from bench.wire import load_of

    payload, capacity = load_of(atari=atari)
    bench = OutboxBench(
        payload,
        capacity,
        batches_per_s=rate,
        directory=directory,
        seconds=seconds,
        rounds=rounds,
    )
    show_figures(bench.run(), as_json=as_json, lines=outbox_lines)


@app.command()
def sessions(
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Sessions.")] = 1_800_000,
    rounds: Rounds = 3,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """The archive of closed sessions of managers with an outbox: size, opening, looking up."""
    from bench.sessions import SessionsBench

    figures = SessionsBench(count, directory=directory, rounds=rounds).run()
    show_figures(figures, as_json=as_json, lines=session_lines)


@app.command()
def shift(
    hours: Annotated[float, typer.Option(min=0.01, max=240.0, help="Of the shift.")] = 8.0,
    rate: Annotated[
        float, typer.Option(min=1.0, max=1000.0, metavar="HZ", help="Steps a second of the robot.")
    ] = 50.0,
    samples_per_insert: Annotated[
        float, typer.Option(min=0.01, max=1000.0, help="The limiter's, where it is on.")
    ] = 4.0,
    warmup: Annotated[
        int, typer.Option(min=64, help="Samples before the first optimization step.")
    ] = 10_000,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """An outbox with the samples of a shift offline, uploaded while its robot plays on.

    \b
    scripts/bench/run shift
    scripts/bench/run shift --hours 0.5 --samples-per-insert 16
    """
    from bench.shift import ShiftBench

    figures = ShiftBench(hours, rate, samples_per_insert, warmup, directory).run()
    show_figures(figures, as_json=as_json, lines=shift_lines)


@app.command()
def snapshots(
    rounds: Rounds = 3,
    seconds: Seconds = 20.0,
    interval: Annotated[
        float, typer.Option(min=1.0, max=600.0, metavar="S", help="Between two generations.")
    ] = 10.0,
    batch_size: BatchSize = 256,
    hidden: Hidden = 256,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Learning while a snapshot is kept, beside learning without.

    \b
    scripts/bench/run snapshots --interval 30 --seconds 60
    """
    from bench.snapshots import SnapshotBench

    bench = SnapshotBench(
        batch_size,
        hidden,
        interval_s=interval,
        directory=directory,
        seconds=seconds,
        rounds=rounds,
    )
    show_figures(bench.run(), as_json=as_json, lines=snapshot_lines)


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
    from bench.models import ModelsBench

    size = int(megabytes * (1 << 20))
    figures = ModelsBench(size, actors, interval, step, seconds).run()
    show_figures(figures, as_json=as_json, lines=model_lines)


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
    from bench.managers import ManagersBench

    figures = ManagersBench(tuple(sizes or (1, 64)), rate, seconds, rounds).run()
    show_figures(figures, as_json=as_json, lines=manager_lines)


@app.command()
def checkpoints(
    batch_size: BatchSize = 256,
    hidden: Hidden = 256,
    rounds: Rounds = 25,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """The training loop while a checkpoint is written, beside the same loop between two of them.

    \b
    scripts/bench/run checkpoints
    scripts/bench/run checkpoints --batch-size 64 --hidden 128
    """
    from bench.checkpoints import CheckpointBench

    figures = CheckpointBench(batch_size, hidden, rounds=rounds, directory=directory).run()
    show_figures(figures, as_json=as_json, lines=checkpoint_lines)


@app.command()
def pages(
    runs: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 50,
    numbers: Annotated[int, typer.Option(min=1000, help="Recorded by each.")] = 1_000_000,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """A report on many runs with large records, and the dashboard's list of them.

    \b
    scripts/bench/run pages
    scripts/bench/run pages --runs 10 --numbers 100000
    """
    from bench.pages import PagesBench

    figures = PagesBench(runs, numbers, directory).run()
    show_figures(figures, as_json=as_json, lines=page_lines)


@app.command()
def journal(
    opts: Annotated[int, typer.Option(min=100, help="Optimization steps of a run.")] = 6000,
    pairs: Annotated[int, typer.Option(min=2, help="Of runs, for each kind of replay.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Whole runs that write a journal, beside the same without.

    \b
    scripts/bench/run journal
    scripts/bench/run journal --pairs 40 --json
    """
    from bench.journal import JournalBench

    show_figures(JournalBench(opts, pairs).run(), as_json=as_json, lines=journal_lines)


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
    from bench.publishing import PublishingBench

    figures = PublishingBench(batch_size, hidden, rounds=rounds).run()
    show_figures(figures, as_json=as_json, lines=publishing_lines)


@app.command()
def sac(
    rounds: Annotated[int, typer.Option(min=1, help="Blocks of twelve steps of each.")] = 40,
    as_json: AsJson = False,
) -> None:
    """SAC's optimization step beside Stable-Baselines3's, which `scripts/setup_peer` installs."""
    from bench.bare_loop import SacBench

    show_figures(SacBench(rounds).run(), as_json=as_json, lines=sac_lines)


@app.command()
def loops(rounds: Rounds = 3, seconds: Seconds = 4.0, as_json: AsJson = False) -> None:
    """`vedette.Replay` under a loop that draws without pause, beside a buffer in its memory.

    \b
    scripts/bench/run loops --rounds 5
    """
    from bench.loops import LoopBench

    figures = LoopBench(seconds=seconds, rounds=rounds).run()
    show_figures(figures, as_json=as_json, lines=loop_lines)


@app.command()
def custom_loop(
    env: Annotated[str, typer.Option(help="Of Gymnasium.")] = "CartPole-v1",
    envs: Annotated[int, typer.Option(min=1, help="How many of them.")] = 8,
    rows: Annotated[int, typer.Option(min=1, help="Of a batch.")] = 64,
    rounds: Rounds = 30,
    seconds: Seconds = 1.0,
    as_json: AsJson = False,
) -> None:
    """vedette.Actor in a loop of its own, beside an actor process, in turn on one core.

    \b
    scripts/bench/run custom-loop
    scripts/bench/run custom-loop --env Hopper-v5
    """
    from bench.custom_loop import CustomLoopBench

    figures = CustomLoopBench(env, envs, rows, seconds, rounds).run()
    show_figures(figures, as_json=as_json, lines=custom_loop_lines)


@app.command()
def real_time(
    kills: Annotated[int, typer.Option(min=0, help="Of the learner.")] = 2,
    seconds: Annotated[float, typer.Option(min=1.0, help="Before, between, after.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """vedette.Actor in a loop of 50 Hz beside a learner that is killed and comes back."""
    from bench.custom_loop import RealTimeBench

    figures = RealTimeBench(kills, seconds).run()
    show_figures(figures, as_json=as_json, lines=real_time_lines)


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
    from bench.shapes import ShapesBench

    figures = ShapesBench(sleep, seconds, rounds).run()
    show_figures(figures, as_json=as_json, lines=shapes_lines)


@app.command()
def peers(
    table: Annotated[Table, typer.Argument(help="What is measured.")],
    rounds: Rounds = 5,
    seconds: Seconds = 4.0,
    only: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Names or programs of peers. [all]")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Other libraries beside us, each in an environment of its own under .venv-bench.

    \b
    scripts/bench/run peers wire --only wire_pipe,wire_queue
    scripts/bench/run peers learner --json
    """
    from bench.peers import measure

    figures = measure(table, rounds, seconds, set(filter(None, only.split(","))))
    show_figures(figures, as_json=as_json, lines=peer_lines)


@app.command()
def replay_peers(
    names: Annotated[
        list[ReplayPeer] | None, typer.Argument(metavar="[PEER]...", help="[all]")
    ] = None,
    rounds: Rounds = 31,
    as_json: AsJson = False,
) -> None:
    """Our replay beside those of other libraries, in one process of an environment of its own.

    \b
    scripts/bench/run replay-peers cpprb
    """
    from bench.replay_beside_peers import measure_in_one_process

    figures = measure_in_one_process(rounds, names or ())
    show_figures(figures, as_json=as_json, lines=replay_peer_lines)


@app.command()
def remote_replays(
    rounds: Rounds = 5,
    seconds: Seconds = 4.0,
    as_json: AsJson = False,
) -> None:
    """`vedette.Replay` beside replays that other processes feed: cpprb, TorchRL and Reverb.

    Reverb needs python3.11.
    """
    from bench.replay_beside_peers import measure_remote

    figures = measure_remote(rounds, seconds)
    show_figures(figures, as_json=as_json, lines=remote_replay_lines)


@app.command()
def sb3(
    seeds: Annotated[int, typer.Argument(min=1, help="In turn.")] = 5,
    env: Annotated[SolvedEnv, typer.Argument(help="Environment.")] = "CartPole-v1",
    as_json: AsJson = False,
) -> None:
    """`vedette run` beside Stable-Baselines3, to the solved return of our preset.

    \b
    scripts/bench/run sb3 1
    scripts/bench/run sb3 5 Pendulum-v1
    """
    from bench.sb3 import measure

    show_figures(measure(seeds, env), as_json=as_json, lines=sb3_lines)


def show_figures(
    figures: dict[str, Any], *, as_json: bool, lines: Callable[[dict[str, Any]], list[str]]
) -> None:
    """Print the figures of a benchmark."""
    for line in [json.dumps(figures)] if as_json else lines(figures):
        typer.echo(line)


if __name__ == "__main__":
    execute(app, "scripts/bench/run", sys.argv[1:])
