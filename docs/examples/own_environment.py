"""An environment of your own: register it, and name it as module:Id."""

import gymnasium as gym
import numpy as np

from vedette import train_async


class Corridor(gym.Env):
    """Walk right, from one end to the other."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.seen(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        return self.seen(), -1.0, self.place == 8, False, {}

    def seen(self):
        return np.array([self.place / 8], np.float32)


if "Corridor-v0" not in gym.registry:  # this file is run here, and imported by its name below
    gym.register("Corridor-v0", Corridor, max_episode_steps=50)

if __name__ == "__main__":
    # In a terminal: vedette run --env own_environment:Corridor-v0
    result = train_async(
        env="own_environment:Corridor-v0",
        agent={"name": "dqn", "target_update_interval": 50, "learning_rate": 2e-3},
        learner={"warmup_period": 200, "eval_interval": 100},
        stop={"target_return": -8.0, "max_opts": 3000},
        in_process=True,  # leave it out, and actors are processes of their own
    )
    print(result.summary["exit_reason"], result.summary["eval"]["best_return_mean"])
