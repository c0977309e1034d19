"""Stable-Baselines3: DQN collecting with DummyVecEnv(16), into its own replay, not training.

`python scripts/bench/peer_programs/collect_sb3.py ENV SECONDS`
"""

from __future__ import annotations

import json
import sys
import time

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

WARM_S = 1.0


class Clock(BaseCallback):
    """Counts steps between the warm-up and the end."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._began = 0.0
        self.steps = 0
        self.took = 0.0

    def _on_training_start(self) -> None:
        self._began = time.monotonic() + WARM_S

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now >= self._began:
            self.steps += self.training_env.num_envs
        self.took = now - self._began
        return self.took < self._seconds


def main() -> None:
    torch.set_num_threads(1)
    envs = make_vec_env(sys.argv[1], n_envs=16, seed=0)
    # Exploring as ours do: mostly by the network, which a random warm-up would not ask.
    model = DQN(
        "MlpPolicy",
        envs,
        policy_kwargs={"net_arch": [64, 64]},
        learning_starts=0,
        train_freq=10**9,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
    )
    clock = Clock(float(sys.argv[2]))
    model.learn(10**9, callback=clock)
    print(json.dumps({"per_s": clock.steps / clock.took}))


if __name__ == "__main__":
    main()
