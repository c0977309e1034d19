"""A Q-network of your own: any nn.Module from an observation to action values."""

import torch
from torch import nn

import vedette


class MyNet(nn.Module):
    def __init__(self, observation, actions):  # a gymnasium space, and how many actions there are
        super().__init__()
        self.first = nn.Linear(observation.shape[0], 64)
        self.norm = nn.LayerNorm(64)
        self.last = nn.Linear(64, actions)

    def forward(self, obs):  # (B, *shape) -> (B, actions)
        return self.last(torch.relu(self.norm(self.first(obs))))


if __name__ == "__main__":
    # In a terminal: vedette run --env CartPole-v1 --set agent.network=own_network:MyNet
    result = vedette.train(
        env="CartPole-v1",
        agent=vedette.DQN(network="own_network:MyNet"),
        learner=vedette.LearnerConfig(eval_interval=100),
        stop=vedette.StopConfig(max_opts=200),
        in_process=True,  # leave it out, and actors are processes of their own
    )
    print(result.summary["exit_reason"], result.summary["eval"]["best_return_mean"])
