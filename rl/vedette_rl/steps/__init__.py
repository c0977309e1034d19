"""Step processors, which make transitions of steps."""

from vedette_rl.steps.n_step import NStep

__all__ = ["NStep"]
