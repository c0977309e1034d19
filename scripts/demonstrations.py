"""Writes the demonstrations of the study ``demonstrations``: a scripted policy on MountainCar.

It pushes the way that the car moves, which swings it up the hill: 20 episodes of each environment,
as ``vedette export --what replay --format npz`` would write them.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

PLACE = Path(__file__).resolve().parent.parent / "docs" / "curves" / "demonstrations"
EPISODES = 20


def push(velocity: float, continuous: bool) -> Any:  # an action of either environment
    """The action that pushes the way that the car moves."""
    forward = velocity >= 0.0
    return np.array([1.0 if forward else -1.0], np.float32) if continuous else 2 if forward else 0


def play(env_id: str) -> dict[str, Any]:
    """The rows of all episodes."""
    env = gym.make(env_id)
    continuous = isinstance(env.action_space, gym.spaces.Box)
    rows: dict[str, list[Any]] = {}
    for seed in range(EPISODES):
        obs, over = env.reset(seed=seed)[0], False
        while not over:
            action = push(obs[1], continuous)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            row = {
                "obs": obs, "action": action, "reward": np.float32(reward), "next_obs": next_obs,
                "terminated": terminated, "truncated": truncated, "n_steps": np.uint8(1),
                "actor": seed,
            }  # fmt: skip
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
            obs, over = next_obs, terminated or truncated
    return {name: np.array(values) for name, values in rows.items()}


def main() -> None:
    PLACE.mkdir(exist_ok=True)
    for env_id in ("MountainCarContinuous-v0", "MountainCar-v0"):
        rows = play(env_id)
        np.savez_compressed(PLACE / f"{env_id}.npz", **rows)
        total = float(rows["reward"].sum()) / EPISODES
        print(f"{env_id}: {len(rows['reward']):,} rows, mean return {total:.1f}")


if __name__ == "__main__":
    main()
