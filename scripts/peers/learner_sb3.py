"""Stable-Baselines3: DQN's `train` on a full replay, MLP of two layers of 256, one thread.

`python scripts/peers/learner_sb3.py BATCH_SIZE SECONDS`
"""

from __future__ import annotations

import json
import sys
import time

import torch
from stable_baselines3 import DQN

ROWS = 20_000
STEPS = 10


def main() -> None:
    torch.set_num_threads(1)
    batch_size, seconds = int(sys.argv[1]), float(sys.argv[2])
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        batch_size=batch_size,
        policy_kwargs={"net_arch": [256, 256]},
        learning_starts=ROWS,
        buffer_size=ROWS,
    )
    model.learn(ROWS)  # collects only, and makes the logger that `train` writes to
    model.train(STEPS, batch_size)
    steps, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        model.train(STEPS, batch_size)
        steps += STEPS
    print(json.dumps({"per_s": steps / (time.monotonic() - began)}))


if __name__ == "__main__":
    main()
