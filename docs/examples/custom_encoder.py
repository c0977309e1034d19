"""A custom encoder in front of SAC's or IQN's layers: any nn.Module, by name."""

import torch
from torch import nn

import vedette


class MyEncoder(nn.Module):
    def __init__(self, observation):  # a gymnasium space
        super().__init__()
        self.first = nn.Linear(observation.shape[0], 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, obs):  # (B, *shape) -> (B, features)
        return torch.tanh(self.norm(self.first(obs)))


if __name__ == "__main__":
    # In a terminal: vedette run --env Pendulum-v1 --set agent.network=custom_encoder:MyEncoder
    result = vedette.train(
        env="Pendulum-v1",
        agent=vedette.SAC(network="custom_encoder:MyEncoder"),
        evaluation=vedette.EvaluationConfig(episodes=2),
        learner=vedette.LearnerConfig(eval_interval=20, warmup_period=300),
        stop=vedette.StopConfig(max_opts=60),
        in_process=True,  # leave it out, and actors are processes of their own
    )
    print(result.summary["exit_reason"], result.summary["eval"]["best_return_mean"])
