"""An environment of your own: a class, named as module:Name."""

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    """Walk right, from one end to the other, in at most 50 steps."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=8):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return self.seen(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        self.steps += 1
        terminated = self.place == self.length
        return self.seen(), -1.0, terminated, self.steps >= 50, {}

    def seen(self):
        return np.array([self.place / self.length], np.float32)


if __name__ == "__main__":
    import vedette

    # In a terminal: vedette run --env own_environment:Corridor
    result = vedette.train(
        env=Corridor,
        agent=vedette.DQN(target_update_interval=50, learning_rate=2e-3),
        learner=vedette.LearnerConfig(warmup_period=200, eval_interval=100),
        stop=vedette.StopConfig(target_return=-8.0, max_opts=3000),
        in_process=True,  # leave it out, and actors are processes of their own
    )
    print(result.exit_reason, result.best_return)
