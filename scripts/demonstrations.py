"""The scripted policies of the study ``demonstrations``, and their demonstrations.

MountainCar's pushes the way that the car moves, which swings it up the hill; LunarLander's is
Gymnasium's own. As a script this writes 20 episodes of each environment, as
``vedette export --what replay --format npz`` would write them.
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


class ScriptedPerson(gym.Wrapper[Any, Any, Any, Any]):
    """Takes over now and then, ever more rarely, and pushes the way that the car moves.

    Args:
        env: MountainCar, of either kind.
        rate: the probability that a takeover begins in a step, at first.
        until: environment steps after which no takeover begins; the rate falls linearly to 0.
        steps: of a takeover; it ends before where the episode does.
    """

    def __init__(self, env: gym.Env[Any, Any], rate: float, until: int, steps: int) -> None:
        super().__init__(env)
        self._rate = rate
        self._until = until
        self._steps = steps
        self._continuous = isinstance(env.action_space, gym.spaces.Box)
        self._played = self._left = 0
        self._velocity = 0.0

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**how)
        self._left = 0
        self._velocity = obs[1]
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        rate = self._rate * max(0.0, 1.0 - self._played / self._until)
        if not self._left and self.np_random.random() < rate:
            self._left = self._steps
        self._played += 1
        own = push(self._velocity, self._continuous) if self._left else None
        obs, reward, terminated, truncated, info = self.env.step(action if own is None else own)
        if own is not None:
            self._left -= 1
            info = {**info, "intervene_action": own}
        self._velocity = obs[1]
        return obs, reward, terminated, truncated, info


def _climb(env: gym.Env[Any, Any], obs: Any) -> Any:
    return push(obs[1], isinstance(env.action_space, gym.spaces.Box))


def _land(env: gym.Env[Any, Any], obs: Any) -> Any:
    from gymnasium.envs.box2d.lunar_lander import heuristic  # needs the box2d extra

    return heuristic(env.unwrapped, obs)  # type: ignore[no-untyped-call]


def play(env_id: str) -> dict[str, Any]:
    """The rows of all episodes."""
    env = gym.make(env_id)
    choose = _land if env_id.startswith("LunarLander") else _climb
    rows: dict[str, list[Any]] = {}
    for seed in range(EPISODES):
        obs = env.reset(seed=seed)[0]
        over = False
        while not over:
            action = choose(env, obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            row = {
                "obs": obs,
                "action": action,
                "reward": np.float32(reward),
                "next_obs": next_obs,
                "terminated": terminated,
                "truncated": truncated,
                "n_steps": np.uint8(1),
                "actor": seed,
            }
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
            obs = next_obs
            over = terminated or truncated
    return {name: np.array(values) for name, values in rows.items()}


def main() -> None:
    PLACE.mkdir(exist_ok=True)
    for env_id in ("MountainCarContinuous-v0", "MountainCar-v0", "LunarLander-v3"):
        rows = play(env_id)
        np.savez_compressed(PLACE / f"{env_id}.npz", **rows)
        total = float(rows["reward"].sum()) / EPISODES
        print(f"{env_id}: {len(rows['reward']):,} rows, mean return {total:.1f}")


if __name__ == "__main__":
    main()
