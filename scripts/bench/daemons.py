"""The processes that a measurement starts, and the status it reads."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.measuring import processor_s
from vedette.local.daemons import daemon_command, free_port, last_lines
from vedette_services.config import RunConfig, load_config, write_config
from vedette_services.errors import ChildFailedError, NoAnswerError, ServicesError
from vedette_services.host.processes import end_children, spawn
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.status.client import StatusClient
from vedette_services.status.status import Status

NOT_TRAINING = ("agent.batch_size=64", "replay.samples_per_insert=1e-12", "replay.error_buffer=32")
"""Settings under which the learner inserts for ever and never draws a batch: the first would be
more than the limiter allows."""

ACTOR = "vedette_services.actors.actor"
GATEWAY = "vedette_services.learner.gateway.process"
TRAINER = "vedette_services.learner.trainer.process"
PRODUCER = "bench.producer"

_START_S = 180.0  # a loaded machine takes its time to import torch
_END_S = 20.0
_ASK_S = 0.5


def ingest_run(
    rows: int, shape: tuple[int, ...], dtype: str, capacity: int, *, frame_stack: int = 0
) -> RunConfig:
    """Configure a run whose learner inserts samples of a synthetic environment, and no more.

    Args:
        rows: of a batch.
        shape, dtype: of the environment's observations.
        capacity: of the replay.
        frame_stack: number of these that make an observation; each is sent once. 0: no stacking.
    """
    return load_config(
        env="vedette_rl.testing:Synthetic",
        agent="dqn",
        settings=[
            "agent.network=mlp",
            "agent.hidden_sizes=[8]",
            "agent.n_step=1",
            f"env.kwargs.shape={json.dumps(list(shape))}",
            f"env.kwargs.dtype={dtype}",
            f"env.frame_stack={frame_stack}",
            f"actors.n_buffer={rows}",
            f"replay.capacity={capacity}",
            *NOT_TRAINING,
            "learner.device=cpu",
            "learner.eval_interval=0",
            "stop.max_seconds=600",
        ],
    ).config


@contextmanager
def running(
    commands: Iterable[list[str]], log: Path | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run every command as a process of its own meanwhile, and end them all afterwards."""
    children = [spawn(command, log=log) for command in commands]
    try:
        yield children
    finally:
        end_children(children, term_s=_END_S)


def run_actors(address: Address, count: int, *options: str) -> AbstractContextManager[object]:
    """Run a manager with `count` actors meanwhile; its log is thrown away."""
    arguments = ("--learner", str(address), "--count", str(count), *options)
    return running([daemon_command("actors", *arguments)], log=Path(os.devnull))


@contextmanager
def learner_of(
    config: RunConfig, keys: Path | None = None
) -> Iterator[tuple[Address, StatusClient]]:
    """Run a learner on a free port meanwhile; its run directory is removed afterwards.

    Args:
        keys: its folder of keys; None: it asks for none.

    Raises:
        ChildFailedError: it ended before it answered.
    """
    address = Address("127.0.0.1", free_port())
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as scratch:
        place = Path(scratch)
        write_config(config, place / "config.toml", "a measurement")
        command = daemon_command(
            "learner",
            str(place / "config.toml"),
            "--out",
            str(place / "run"),
            "--bind",
            str(address),
            *(("--keys", str(keys)) if keys else ()),
        )
        log = place / "learner.log"
        with (
            running([command], log=log) as (learner,),
            StatusClient(address, ClientKeys.read(keys) if keys else None) as asker,
        ):
            ask(asker, partial(_check_runs, learner, log))
            yield address, asker


def ask(asker: StatusClient, check: Callable[[], None] = lambda: None) -> Status:
    """Return the status of a learner, which may still be starting.

    Args:
        check: raises where there is nothing to wait for.

    Raises:
        NoAnswerError: none comes in three minutes.
    """
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        status = asker.ask(_ASK_S)
        if status is not None:
            return status
        check()
    raise NoAnswerError("the learner of this measurement", _START_S)


def _check_runs(learner: subprocess.Popen[bytes], log: Path) -> None:
    if (code := learner.poll()) is not None:
        words = "".join(last_lines(log, 1))
        raise ChildFailedError("learner of this measurement", code, words)


def check_actors(status: Status) -> None:
    """Check that no actor has died: the rate of actors that are restarted means nothing.

    Raises:
        ServicesError: one died, and why.
    """
    for manager in status.managers:
        for actor in manager.actors:
            if actor.restarts or actor.error:
                why = f": {actor.error}" if actor.error else ""
                raise ServicesError(f"actor {actor.id} of {manager.id} died{why}")


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples inserted into the replay.

    Args:
        rows: their number.
        seconds: the time it took.
        processor_s: processor time of the processes asked about.
    """

    rows: int
    seconds: float
    processor_s: float

    @property
    def per_s(self) -> float:
        """Samples per second."""
        return self.rows / self.seconds


def measured(
    asker: StatusClient, warm_s: float, measure_s: float, modules: Sequence[str] = ()
) -> Measured:
    """Count the samples inserted during `measure_s`, from `warm_s` after the first on.

    Args:
        modules: their processes' processor time is summed.

    Raises:
        NoAnswerError: none is inserted within three minutes.
    """
    deadline = time.monotonic() + _START_S
    while not ask(asker).samples.inserted:
        if time.monotonic() > deadline:
            raise NoAnswerError("producers of this measurement", _START_S)
    time.sleep(warm_s)
    before = ask(asker).samples.inserted or 0
    began = time.monotonic()
    spent = -sum(map(processor_s, modules))
    time.sleep(measure_s)
    after = ask(asker).samples.inserted or 0
    ended = time.monotonic()
    spent += sum(map(processor_s, modules))
    return Measured(after - before, ended - began, spent)
