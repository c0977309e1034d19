"""The replay's reading end, as the configuration wants it drawn from."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from vedette_rl.core import ReplayBuffer
from vedette_rl.replay.limiter import Limiter, limiter_of
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.learner.spec import LearnerSpec

_WAIT_S = 30.0  # for the gateway to have made it


def replay_directory(spec: LearnerSpec) -> Path:
    """Where a run's replay lies: in its own directory unless it is told another."""
    chosen = spec.config.replay.directory
    return Path(chosen) / spec.run_id if chosen else spec.run.replay


def run_limiter(spec: LearnerSpec) -> Limiter:
    """The run's limiter: gateway and trainer ask it the same questions, each about its own side."""
    config = spec.config
    return limiter_of(
        config.replay,
        min_size=config.learner.warmup_period,
        batch_size=config.agent.batch_size,
        insert_rows=config.actors.n_buffer,
    )


def open_replay(spec: LearnerSpec, epoch: int) -> ReplayBuffer:
    """The replay to draw from, once the gateway has made it.

    Args:
        epoch: makes every start draw otherwise, where no checkpoint says how to go on.

    Raises:
        ReplayFormatError: there is none after half a minute, or it is torn.
    """
    directory = replay_directory(spec)
    deadline = time.monotonic() + _WAIT_S
    while not (directory / "ring.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # the gateway is another process: there is nothing to wait on
    rng = np.random.default_rng([spec.config.seed, epoch])
    return UniformReplay(RingReader(directory), rng)
