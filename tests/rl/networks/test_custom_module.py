"""Encoders of the user's own stand in front of IQN's and SAC's layers: plain modules, by name."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs import Spaces
from vedette_rl.errors import CustomNetworkError, PolicyFileError, UnknownNameError
from vedette_rl.exported import PolicyFile, load_policy, write_numpy
from vedette_rl.networks.encoder import CustomEncoder
from vedette_rl.testing.inputs import sampled_obs, sampled_transitions

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
NESTED = gym.spaces.Dict({"a": VECTOR, "b": IMAGE})
ACTIONS: dict[str, gym.Space[Any]] = {
    "iqn": gym.spaces.Discrete(3, start=2),
    "sac": gym.spaces.Box(-2, 2, (2,), np.float32),
}


class Encoder(nn.Module):
    def __init__(self, observation: gym.Space[Any]) -> None:
        super().__init__()
        self.first = nn.LazyLinear(8)
        self.first(self.flat(observation.sample()).unsqueeze(0))

    def flat(self, obs: Any) -> torch.Tensor:
        parts = [obs[key] for key in sorted(obs)] if isinstance(obs, dict) else [obs]
        rows = [torch.as_tensor(part, dtype=torch.float32) for part in parts]
        return torch.cat([row.flatten() for row in rows])

    def forward(self, obs: Any) -> torch.Tensor:
        parts = [obs[key] for key in sorted(obs)] if isinstance(obs, dict) else [obs]
        return torch.tanh(self.first(torch.cat([part.float().flatten(1) for part in parts], 1)))


class NotFlat(Encoder):
    def forward(self, obs: Any) -> torch.Tensor:
        return super().forward(obs).unsqueeze(1)


class Normalised(Encoder):
    def __init__(self, observation: gym.Space[Any]) -> None:
        super().__init__(observation)
        self.norm = nn.BatchNorm1d(8)


class Tied(Encoder):
    def __init__(self, observation: gym.Space[Any]) -> None:
        super().__init__(observation)
        self.second = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)
        self.third.weight = self.second.weight

    def forward(self, obs: Any) -> torch.Tensor:
        return self.third(torch.relu(self.second(super().forward(obs))))


def named(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


@pytest.mark.parametrize(
    ("encoder", "observation"),
    [(Encoder, VECTOR), (Encoder, IMAGE), (Encoder, NESTED), (Tied, VECTOR)],
    ids=["vector", "image", "nested", "tied"],
)
@pytest.mark.parametrize("agent", ["iqn", "sac"])
def test_an_own_encoder_learns_and_acts_the_same_on_both_sides(
    agent: str, encoder: type, observation: gym.Space[Any]
) -> None:
    spaces = Spaces(observation, ACTIONS[agent])
    kind = agent_kind(agent)
    config = kind.config(network=named(encoder), hidden_sizes=(16, 16))
    kind.check(config, spaces)
    learns = kind.build_agent(config, spaces, device="cpu", seed=0)
    columns = sampled_transitions(spaces, 32, 0)
    before = learns.model_info()
    for _ in range(3):
        learns.opt({name: torch.from_numpy(column) for name, column in columns.items()})
    after = learns.model_info()
    name = "encoder.net.first.weight"
    assert not np.array_equal(before.arrays[name], after.arrays[name])
    policy = kind.build_policy(config, spaces, ranks=np.zeros(5), seed=0)
    policy.sync_model(after)
    obs = sampled_obs(observation, 5, 1)
    assert kind.build_graph is not None
    greedy = kind.build_graph(config, spaces, after)
    expected, *_ = greedy(*(torch.from_numpy(obs[leaf.name]) for leaf in greedy.leaves))
    np.testing.assert_allclose(policy.act(obs, explore=False), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (NotFlat, r"it gave \(2, 1, 8\) for 2 observations, not \(2, features\)"),
        (Normalised, "its buffer 'norm.running_mean' would not reach the actors"),
    ],
)
def test_an_encoder_that_would_not_work_is_refused(kind: type, why: str) -> None:
    with pytest.raises(CustomNetworkError, match=why):
        CustomEncoder(named(kind), VECTOR)


@pytest.mark.parametrize("agent", ["iqn", "sac"])
def test_an_encoder_that_is_not_there_is_refused_before_anything_is_built(agent: str) -> None:
    kind = agent_kind(agent)
    with pytest.raises(UnknownNameError, match=r"agent.network is 'no_such_pkg:Net'"):
        kind.check(kind.config(network="no_such_pkg:Net"), Spaces(VECTOR, ACTIONS[agent]))


def test_an_exported_policy_imports_an_own_encoder_only_where_that_is_allowed(
    tmp_path: Path,
) -> None:
    spaces = Spaces(IMAGE, ACTIONS["sac"])
    kind = agent_kind("sac")
    config = kind.config(network=named(Encoder))
    model = kind.build_agent(config, spaces, device="cpu", seed=0).model_info()
    path = tmp_path / "policy.npz"
    with path.open("wb") as file:
        write_numpy(file, PolicyFile(config, spaces, model))
    with pytest.raises(PolicyFileError, match="give allow_import=True"):
        load_policy(path)
    with pytest.raises(TypeError, match=r"write allow_import=\['of_another'\]"):
        load_policy(path, allow_import="of_another")
    obs = sampled_obs(IMAGE, 5, 1)
    policy = kind.build_policy(config, spaces, ranks=np.zeros(5), seed=0)
    policy.sync_model(model)
    np.testing.assert_array_equal(
        load_policy(path, allow_import=True).act(obs, explore=False),
        policy.act(obs, explore=False),
    )


def test_tied_weights_travel_once_and_stay_tied_while_they_learn() -> None:
    spaces = Spaces(VECTOR, ACTIONS["sac"])
    kind = agent_kind("sac")
    config = kind.config(network=named(Tied), hidden_sizes=(16, 16), policy_delay=1)
    learns = kind.build_agent(config, spaces, device="cpu", seed=0)
    before = learns.model_info().arrays
    assert "encoder.net.second.weight" in before
    assert "encoder.net.third.weight" not in before
    columns = sampled_transitions(spaces, 32, 0)
    learns.opt({name: torch.from_numpy(column) for name, column in columns.items()})
    after = learns.model_info().arrays
    assert not np.array_equal(
        before["encoder.net.second.weight"], after["encoder.net.second.weight"]
    )
    tied = learns.pi.encoder.net
    assert tied.third.weight is tied.second.weight
