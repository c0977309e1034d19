"""|TD errors| as actors tell them, and what becomes of them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.policy import DqnPolicy
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, ModelInfo, TdErrorPolicy
from vedette_rl.core.protocols import implements
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import ModelMismatchError
from vedette_rl.testing.inputs import sampled_transitions

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (4, 40, 40), np.uint8)
ACTIONS = gym.spaces.Discrete(3)


def test_the_errors_are_those_of_the_bellman_equation() -> None:
    table = {0.0: [1.0, 2.0], 1.0: [5.0, 3.0]}
    transitions = {
        "obs": np.array([0.0, 0.0, 1.0]),
        "action": np.array([7, 8, 8]),
        "reward": np.array([1.0, 1.0, -2.0], np.float32),
        "next_obs": np.array([1.0, 1.0, 0.0]),
        "terminated": np.array([False, True, False]),
        "truncated": np.array([False, False, True]),
        "n_steps": np.array([1, 1, 3], np.uint8),
    }

    class Table:
        def sync_model(self, model: ModelInfo) -> None:
            raise NotImplementedError

        def __call__(self, obs: Columns, *inputs: NDArray[Any]) -> NDArray[np.float32]:
            return np.array([table[value] for value in obs["obs"]], np.float32)

    spaces = Spaces(VECTOR, gym.spaces.Discrete(2, start=7))
    config = DqnConfig(discount=0.5)
    policy = DqnPolicy(Table(), config, spaces, ranks=np.zeros(1), seed=0)
    errors = policy.td_errors(transitions)
    assert errors.dtype == np.float32
    # 1 + 0.5 * 5 - 1; it ended: 1 - 2; truncated, so it goes on: -2 + 0.125 * 2 - 3
    np.testing.assert_allclose(errors, [2.5, 1.0, 4.75])


@pytest.mark.parametrize("name", ["dqn", "iqn"])
@pytest.mark.parametrize("observation", [VECTOR, IMAGE])
def test_policies_of_action_values_tell_errors_by_their_model(
    name: str, observation: gym.Space[Any]
) -> None:
    kind = agent_kind(name)
    spaces = Spaces(observation, ACTIONS)
    sizes = {"hidden_sizes": (8, 8), "cnn_hidden_sizes": (8,) if name == "dqn" else (8, 8)}
    config = kind.config(**sizes, discount=0.5)
    policy = kind.build_policy(config, spaces, ranks=np.zeros(1), seed=0)
    assert implements(policy, TdErrorPolicy)
    transitions = sampled_transitions(spaces, 6, 0)
    with pytest.raises(ModelMismatchError):
        policy.td_errors(transitions)
    agent = kind.build_agent(config, spaces, device="cpu", seed=1)
    policy.sync_model(agent.model_info())
    errors = policy.td_errors(transitions)
    assert errors.shape == (6,)
    assert errors.dtype == np.float32
    assert (errors >= 0).all()
    np.testing.assert_array_equal(policy.td_errors(transitions), errors)
    if name == "dqn":  # of the same network, target and double choose alike
        batch = {key: torch.from_numpy(column) for key, column in transitions.items()}
        told = agent.opt(batch).td_errors
        assert told is not None
        np.testing.assert_allclose(errors, told.numpy(), rtol=1e-4, atol=1e-5)


def test_a_policy_of_actions_alone_tells_none() -> None:
    kind = agent_kind("sac")
    spaces = Spaces(VECTOR, gym.spaces.Box(-1, 1, (2,), np.float32))
    policy = kind.build_policy(kind.config(), spaces, ranks=np.zeros(1), seed=0)
    assert not implements(policy, TdErrorPolicy)
