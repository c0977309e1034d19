"""A custom Q-network: any nn.Module from an observation to action values."""

import torch
from torch import nn


class MyNet(nn.Module):
    def __init__(self, observation, actions):  # a gymnasium space, and how many actions there are
        super().__init__()
        self.first = nn.Linear(observation.shape[0], 64)
        self.norm = nn.LayerNorm(64)
        self.last = nn.Linear(64, actions)

    def forward(self, obs):  # (B, *shape) -> (B, actions)
        return self.last(torch.relu(self.norm(self.first(obs))))
