"""What a user froze stays frozen: it travels and is saved, and nothing moves it."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent
from vedette_rl.envs import Spaces
from vedette_rl.errors import CustomNetworkError
from vedette_rl.networks.adam import VectorAdam
from vedette_rl.networks.layers import MlpSizes
from vedette_rl.networks.parameter_vector import ParameterVector
from vedette_rl.networks.torch_network import Mlp
from vedette_rl.testing.inputs import sampled_transitions

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
ACTIONS: dict[str, gym.Space[Any]] = {
    "dqn": gym.spaces.Discrete(3),
    "iqn": gym.spaces.Discrete(3),
    "sac": gym.spaces.Box(-2, 2, (2,), np.float32),
}


class HalfFrozen(nn.Module):
    """As an encoder, and with `actions` as a Q-network."""

    def __init__(self, observation: gym.Space[Any], actions: int = 8) -> None:
        super().__init__()
        self.backbone = nn.Linear(4, 8).requires_grad_(False)
        self.head = nn.Linear(8, actions)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.backbone(obs)))


class Frozen(HalfFrozen):
    def __init__(self, observation: gym.Space[Any], actions: int = 8) -> None:
        super().__init__(observation, actions)
        self.requires_grad_(False)


def agent_with(name: str, network: type, **options: Any) -> Agent:
    kind = agent_kind(name)
    config = kind.config(network=f"{__name__}:{network.__name__}", **options)
    return kind.build_agent(config, Spaces(VECTOR, ACTIONS[name]), device="cpu", seed=0)


def step(agent: Agent, name: str, times: int = 5) -> None:
    columns = sampled_transitions(Spaces(VECTOR, ACTIONS[name]), 32, 0)
    for _ in range(times):
        agent.opt({key: torch.from_numpy(column) for key, column in columns.items()})


def tensors(state: dict[str, Any], word: str) -> dict[str, torch.Tensor]:
    """All in a state whose path has this word."""
    found: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found |= {f"{name}/{key}": tensor for key, tensor in tensors(value, word).items()}
        elif isinstance(value, torch.Tensor) and word in name:
            found[name] = value
    return found


@pytest.mark.parametrize(
    ("agent", "network"),
    [
        ("dqn", HalfFrozen),
        ("iqn", HalfFrozen),
        ("sac", HalfFrozen),
        ("iqn", Frozen),  # the agent's own layers learn behind it
        ("sac", Frozen),
    ],
)
def test_frozen_layers_travel_and_are_saved_and_never_move(agent: str, network: type) -> None:
    learns = agent_with(agent, network, target_update_interval=2, max_grad_norm=0.1)
    first = learns.model_info().arrays
    before = learns.get_state()
    step(learns, agent)
    last = learns.model_info().arrays
    after = learns.get_state()
    moved = {name for name in first if not np.array_equal(first[name], last[name])}
    frozen = "net." if network is Frozen else "backbone."
    assert any(frozen in name for name in last)
    assert not any(frozen in name for name in moved)
    assert {name for name in first if frozen not in name} == moved
    was, now = tensors(before, frozen), tensors(after, frozen)
    assert len(now) >= 8  # both networks' weights and biases, and their moments
    assert all(torch.equal(was[name], now[name]) for name in now)
    assert all(now[name].any() == ("adam" not in name) for name in now)


def test_a_frozen_parameter_has_no_gradient_and_counts_in_no_norm() -> None:
    network = Mlp(MlpSizes((3, 5, 2)))
    network[0].requires_grad_(False)
    vector = ParameterVector(network, learns=True)
    assert vector.parameters == list(network[1].parameters())
    adam = VectorAdam(vector, learning_rate=0.1)
    torch.autograd.backward(network(torch.ones(1, 3)).sum())
    assert all(parameter.grad is None for parameter in network[0].parameters())
    expected = torch.cat([p.grad.flatten() for p in network[1].parameters() if p.grad is not None])
    assert float(adam.grad_norm()) == pytest.approx(float(expected.norm()))


def test_weight_decay_moves_no_frozen_parameter() -> None:
    network = Mlp(MlpSizes((3, 5, 2)))
    network[0].requires_grad_(False)
    vector = ParameterVector(network, learns=True)
    adam = VectorAdam(vector, learning_rate=0.1, weight_decay=0.5)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    adam.zero_grad()
    adam.step()
    same = [torch.equal(*pair) for pair in zip(before, network.parameters(), strict=True)]
    assert same == [True, True, False, False]


def test_what_was_frozen_between_two_starts_moves_no_further() -> None:
    free, frozen = Mlp(MlpSizes((3, 2, 2))), Mlp(MlpSizes((3, 2, 2)))
    before = VectorAdam(ParameterVector(free, learns=True), learning_rate=0.1)
    torch.autograd.backward(free(torch.ones(1, 3)).sum())
    before.step()
    frozen[0].requires_grad_(False)
    vector = ParameterVector(frozen, learns=True)
    adam = VectorAdam(vector, learning_rate=0.1)
    adam.set_state(before.get_state())
    weight = frozen[0].weight.clone()
    adam.step()
    assert torch.equal(frozen[0].weight, weight)


def test_a_network_of_which_nothing_learns_is_refused_in_a_line() -> None:
    with pytest.raises(CustomNetworkError, match="all its parameters are frozen") as e:
        agent_with("dqn", Frozen)
    assert "\n" not in str(e.value)
