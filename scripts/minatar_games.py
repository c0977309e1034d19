"""Registers MinAtar's games: `scripts.minatar_games:MinAtar/Breakout-v1`, for `scripts/curves`.

Gymnasium has not loaded the environments of installed packages by itself since version 1, and
MinAtar registers its own nowhere else.
"""

from minatar.gym import register_envs

register_envs()
