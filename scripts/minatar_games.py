"""Registers MinAtar's games: `scripts.minatar_games:MinAtar/Breakout-v1`, for `scripts/curves`.

MinAtar names its games to Gymnasium in an entry point, which Gymnasium no longer reads since
version 1.
"""

from minatar.gym import register_envs

register_envs()
