"""A user's own training loop, which draws, publishes and learns nothing.

``python numbered_loop.py RUN HOST:PORT BATCHES``
"""

from __future__ import annotations

import sys

import numpy as np

import vedette


def main(run: str, bind: str, batches: int) -> None:
    """Draw batches from a durable replay that actors of `numbered_env` feed."""
    with vedette.Replay(
        run,
        bind=bind,
        env="numbered_env:NumberedPictures",
        agent="numbered_env:Flips",
        replay=vedette.ReplayConfig(capacity=300, prioritized=True, samples_per_insert=4),
        learner=vedette.LearnerConfig(warmup_period=40),
        actors=vedette.ActorsConfig(n_buffer=8),
    ) as replay:
        replay.publish({"chance": np.array([0.5], np.float32)})
        for _ in range(batches):
            batch = replay.sample(8)
            replay.update_priority(batch.indices, batch["reward"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
