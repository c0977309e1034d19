"""Evaluation: what a model returns when it acts greedily."""

from vedette_rl.evaluation.greedy import GreedyEvaluator

__all__ = ["GreedyEvaluator"]
