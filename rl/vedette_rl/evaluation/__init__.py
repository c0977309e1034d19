"""Evaluation: what a model returns when it acts greedily."""

from vedette_rl.evaluation.evaluator import GreedyEvaluator

__all__ = ["GreedyEvaluator"]
