"""Stable-Baselines3: `train` on a full replay, MLP of two layers of 256, one thread.

`python scripts/bench/peer_programs/learner_sb3.py BATCH_SIZE SECONDS|sac`: DQN, prints its steps
per second; or SAC, reads numbers of steps and prints the seconds of processor and of wall time that
each took.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, SAC

ROWS = 20_000
STEPS = 10


class Control(gym.Env[Any, Any]):
    """Random numbers, as many as HalfCheetah's."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (17,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.5, False, False, {}


def main() -> None:
    torch.set_num_threads(1)
    batch_size = int(sys.argv[1])
    kind = SAC if sys.argv[2] == "sac" else DQN
    model = kind(
        "MlpPolicy",
        Control() if kind is SAC else "CartPole-v1",
        batch_size=batch_size,
        policy_kwargs={"net_arch": [256, 256]},
        learning_starts=ROWS,
        buffer_size=ROWS,
    )
    model.learn(ROWS)  # collects only, and makes the logger that `train` writes to
    model.train(STEPS, batch_size)
    if kind is SAC:
        for line in sys.stdin:
            spent, began = time.process_time(), time.perf_counter()
            model.train(int(line), batch_size)
            print(time.process_time() - spent, time.perf_counter() - began, flush=True)
        return
    steps = 0
    seconds = float(sys.argv[2])
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        model.train(STEPS, batch_size)
        steps += STEPS
    print(json.dumps({"per_s": steps / (time.monotonic() - began)}))


if __name__ == "__main__":
    main()
