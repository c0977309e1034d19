"""A policy trained elsewhere, evaluated as Vedette's own are: same seeds, same episodes."""

import numpy as np

from vedette_rl.envs import EnvConfig
from vedette_rl.evaluation import GreedyEvaluator


class Elsewhere:
    """A policy: `act` maps columns of observations to one action each. Load any model here.

    Discrete actions count from 0 for it, whatever the environment's own `start` is.
    """

    def __init__(self):
        self.weights = np.array([0.1, 0.4, 1.0, 0.9])  # of (x, x', angle, angle')

    def sync_model(self, model):
        raise TypeError("it is what it is")

    def act(self, obs, *, explore):
        return (obs["obs"] @ self.weights > 0).astype(np.int64)


if __name__ == "__main__":
    evaluator = GreedyEvaluator(EnvConfig(id="CartPole-v1"), episodes=20, seed=10_000)
    evaluation = evaluator.evaluate(Elsewhere(), version=0)
    evaluator.close()
    mean, std = evaluation.return_mean, evaluation.return_std
    print(f"{mean:.1f} ± {std:.1f} over {evaluation.episodes} episodes")
