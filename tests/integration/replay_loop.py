"""A training loop of a user's own, which learns nothing: it draws, publishes and counts.

``python replay_loop.py RUN HOST:PORT KEY=VALUE ...``; SIGTERM ends the loop, as a user's own would.
"""

from __future__ import annotations

import signal
import sys
import threading

import numpy as np
from numpy.typing import NDArray

import vedette
from vedette_rl.core import Columns, ModelInfo
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
                batch = replay.sample(64, timeout_s=0.2)
            except TimeoutError:
                continue
            assert (batch["next_obs"][:, 1] > batch["obs"][:, 1]).all(), "torn rows"
            replay.update_priority(batch.indices, batch["reward"])
            if replay.batches % EVERY == 0:
                replay.publish({"chance": np.array([0.7], np.float32)})


if __name__ == "__main__":
    main()
