"""A custom step processor and a custom exploration, by name."""

import numpy as np

import vedette
from vedette_rl.steps import NStep


class SignedRewards(NStep):
    """Learn from the sign of each reward, however large it is. Evaluations keep the true ones."""

    def process(self, step):
        np.sign(step.reward, out=step.reward)
        return super().process(step)


class Greedier:
    """Explore in one step of twenty, at first in every step."""

    def __init__(self, config, ranks, seed):
        self.rng = np.random.default_rng(seed)

    def choose(self, q_EA, version):  # (environments, actions) -> (environments,)
        rows, actions = q_EA.shape
        explores = self.rng.random(rows) < max(0.05, 1.0 - version / 100)
        return np.where(explores, self.rng.integers(actions, size=rows), q_EA.argmax(axis=1))


if __name__ == "__main__":
    result = vedette.train(
        env="CartPole-v1",
        agent=vedette.DQN(exploration=vedette.ExplorationConfig(kind="custom_steps:Greedier")),
        actors=vedette.ActorsConfig(step_processor="custom_steps:SignedRewards"),
        stop=vedette.StopConfig(max_opts=100),
        in_process=True,
    )
    print(result.summary["exit_reason"], result.summary["samples"]["inserted"])
