"""The replay's reading end, as the configuration wants it drawn from."""

from __future__ import annotations

import logging
import time

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import ReplayBuffer
from vedette_rl.errors import ReplayTornError
from vedette_rl.replay.frames_ring import open_reader
from vedette_rl.replay.manifest import MANIFEST
from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.learner.spec import LearnerSpec
from vedette_services.run_replay import replay_directory

log = logging.getLogger("vedette.trainer")

_WAIT_S = 30.0  # for the gateway to have made it


def open_replay(spec: LearnerSpec, epoch: int) -> ReplayBuffer:
    """The replay to draw from, once the gateway has made it.

    Args:
        epoch: makes every start draw otherwise, where no checkpoint says how to go on.

    Raises:
        ReplayFormatError: there is none after half a minute, or it is torn. Priorities alone that
            are torn are made anew.
        ReplayBudgetError: the disk has no room for the priorities.
    """
    replay = spec.config.replay
    directory = replay_directory(spec.config, spec.run.root)
    deadline = time.monotonic() + _WAIT_S
    while not (directory / MANIFEST).exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # the gateway is another process: there is nothing to wait on
    rng = np.random.default_rng([spec.config.seed, epoch])
    ring = open_reader(directory)
    if replay.prioritized:
        return PrioritizedReplay(ring, rng, replay, memory=_priorities(ring))
    return UniformReplay(ring, rng)


def _priorities(ring: RingReader) -> NDArray[np.float64]:
    """The priorities that were left, or new ones where those are damaged: no sample is lost."""
    try:
        return open_priorities(ring)
    except ReplayTornError as error:
        log.warning("%s %s: priorities begin anew, all samples count as new", error.path, error.why)
        error.path.unlink()
        return open_priorities(ring)
