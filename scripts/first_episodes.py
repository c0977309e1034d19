"""Ends the first episode of each environment early, so that those of a fleet do not begin together.

The environments of a fleet begin at once. Where episodes end by a time limit alone, they also end
at once: no transition of a beginning is collected until all have reached the limit.
"""

from typing import Any

import gymnasium as gym


class CutFirstEpisode(gym.Wrapper[Any, Any, Any, Any]):
    """Truncates the first episode after a random number of steps; later ones are as they are.

    Args:
        steps: the most of the first episode, such as the time limit; at least 1.
    """

    def __init__(self, env: gym.Env[Any, Any], steps: int) -> None:
        super().__init__(env)
        self._steps = steps
        self._left: int | None = None
        self._is_first = True

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**how)
        self._left = int(self.np_random.integers(1, self._steps + 1)) if self._is_first else None
        self._is_first = False
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._left is not None:
            self._left -= 1
            truncated = truncated or self._left <= 0
        return obs, reward, terminated, truncated, info
