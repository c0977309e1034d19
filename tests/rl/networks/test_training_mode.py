"""Networks learn in training mode, and act, evaluate and give targets in evaluation mode."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs import Spaces
from vedette_rl.networks.seeding import seed_process
from vedette_rl.testing.inputs import sampled_obs, sampled_transitions

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
ACTIONS: dict[str, gym.Space[Any]] = {
    "dqn": gym.spaces.Discrete(3),
    "iqn": gym.spaces.Discrete(3),
    "sac": gym.spaces.Box(-2, 2, (2,), np.float32),
}
MODES: list[tuple[bool, bool]] = []
"""Of each forward pass: whether it was in training mode, and had a gradient to give."""


class Dropped(nn.Module):
    """As an encoder, and with `actions` as a Q-network."""

    def __init__(self, observation: gym.Space[Any], actions: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 32), nn.Linear(32, actions)
        self.dropout = nn.Dropout(0.5)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        MODES.append((self.training, torch.is_grad_enabled()))
        return self.last(self.dropout(torch.relu(self.first(obs))))


def parts(name: str, **options: Any) -> tuple[Any, Any, Spaces]:
    kind = agent_kind(name)
    config = kind.config(network=f"{__name__}:Dropped", hidden_sizes=(16, 16), **options)
    return kind, config, Spaces(VECTOR, ACTIONS[name])


@pytest.mark.parametrize("agent", ["dqn", "iqn", "sac"])
def test_dropout_is_off_wherever_a_policy_acts(agent: str) -> None:
    kind, config, spaces = parts(agent)
    model = kind.build_agent(config, spaces, device="cpu", seed=0).model_info()
    obs = sampled_obs(VECTOR, 50, 1)
    policies = [kind.build_policy(config, spaces, ranks=np.zeros(50), seed=3) for _ in range(2)]
    for policy in policies:
        policy.sync_model(model)
    for explore in (True, False):
        one, other = (policy.act(obs, explore=explore) for policy in policies)
        np.testing.assert_array_equal(one, other)
    assert kind.build_graph is not None
    greedy, *_ = kind.build_graph(config, spaces, model)(torch.from_numpy(obs["obs"]))
    np.testing.assert_allclose(policies[0].act(obs, explore=False), greedy.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("agent", "options", "has_targets"),
    [
        ("dqn", {"double": False}, True),
        ("iqn", {"double": False}, True),
        ("sac", {"critic_architecture": "mlp"}, True),
        ("sac", {"critic_architecture": "batch_norm"}, False),
    ],
)
def test_what_learns_is_in_training_mode_and_targets_are_without_noise(
    agent: str, options: dict[str, Any], has_targets: bool
) -> None:
    kind, config, spaces = parts(agent, **options)
    learns = kind.build_agent(config, spaces, device="cpu", seed=0)
    columns = sampled_transitions(spaces, 32, 0)
    MODES.clear()
    learns.opt({name: torch.from_numpy(column) for name, column in columns.items()})
    assert all(training for training, gradient in MODES if gradient)
    assert ((False, False) in MODES) == has_targets


def test_a_processes_random_numbers_depend_on_the_seed_and_the_start() -> None:
    with torch.random.fork_rng(devices=[]):
        drawn = []
        for seed, epoch in ((0, 1), (0, 1), (0, 2), (1, 1)):
            seed_process(seed, epoch)
            drawn.append(float(torch.rand(())))
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
