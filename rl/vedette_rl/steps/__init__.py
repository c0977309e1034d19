"""Step processors: what becomes a transition."""

from vedette_rl.steps.n_step import NStep

__all__ = ["NStep"]
