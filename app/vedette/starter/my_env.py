"""A custom environment: a class of Gymnasium's, named my_env:Corridor."""

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    """Walk right, from one end to the other. Every step costs 1."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=8):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.seen(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action == 1 else -1))
        terminated = self.place == self.length
        return self.seen(), -1.0, terminated, False, {}

    def seen(self):
        return np.array([self.place / self.length], np.float32)
