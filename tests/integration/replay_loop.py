"""A training loop of a user's own, which learns nothing: it draws, publishes and counts.

``python replay_loop.py RUN HOST:PORT KEY=VALUE ...``; SIGTERM ends the loop, as a user's own would.
"""

from __future__ import annotations

import signal
import sys
import threading

import numpy as np
from counting_env import STEPS
from numpy.typing import NDArray

import vedette
from vedette_rl.core import Columns, ModelInfo, Sample
from vedette_rl.envs.spaces import Spaces
from vedette_services.config import load_config

EVERY = 20
"""Batches from one model to the next."""


class Flips:
    """A policy of one array: it plays action 1 with that probability."""

    def __init__(self, spaces: Spaces, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def sync_model(self, model: ModelInfo) -> None:
        (self._chance,) = model.arrays["chance"]

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.int64]:
        return (self._rng.random(len(obs["obs"])) < self._chance).astype(np.int64)


def assert_whole(batch: Sample) -> None:
    """Rows are whole, and of sequences each step is followed by the next."""
    if "learned" not in batch:
        assert (batch["next_obs"][:, 1] > batch["obs"][:, 1]).all(), "torn rows"
        return
    count = batch["burned"] + batch["length"]
    steps = np.rint(batch["obs"][:, :, 1] * STEPS)
    goes_on = np.arange(steps.shape[1] - 1) < count[:, None]
    assert (np.diff(steps)[goes_on] == 1).all(), "steps of a sequence follow one another"
    assert (np.diff(batch["t"])[goes_on[:, 1:]] == 1).all(), "and so do their numbers"


def main() -> None:
    run, bind, *settings = sys.argv[1:]
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    config = load_config(
        env="counting_env:Count-v0", agent="replay_loop:Flips", settings=settings
    ).config
    with vedette.Replay(run, config=config, bind=bind) as replay:
        replay.publish({"chance": np.array([0.5], np.float32)})
        while not over.is_set():
            try:
                batch = replay.sample(timeout_s=0.2)
            except TimeoutError:
                continue
            assert_whole(batch)
            errors = batch["reward"].reshape(len(batch.indices), -1).max(1)
            replay.update_priority(batch.indices, errors)
            if replay.batches % EVERY == 0:
                replay.publish({"chance": np.array([0.7], np.float32)})


if __name__ == "__main__":
    main()
