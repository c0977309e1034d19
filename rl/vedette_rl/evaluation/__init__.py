"""Evaluation: returns of a model that acts greedily."""

from vedette_rl.evaluation.evaluator import GreedyEvaluator

__all__ = ["GreedyEvaluator"]
