"""Step processors, which make transitions of steps."""

from vedette_rl.steps.n_step import NStep
from vedette_rl.steps.registry import prepare_steps

__all__ = ["NStep", "prepare_steps"]
