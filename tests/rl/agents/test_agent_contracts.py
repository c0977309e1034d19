"""Every built-in agent and its policy keep the contracts that a user's own are held to."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.agents.registry import agent_type
from vedette_rl.core import Agent, ModelInfo, Policy
from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing import AgentContract, PolicyContract

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
PIXELS = gym.spaces.Box(0, 255, (2, 36, 36), np.uint8)
NESTED = gym.spaces.Dict(
    {"at": VECTOR, "of": gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.MultiBinary(2)])}
)


class Pair(AgentContract, PolicyContract):
    """An agent's two halves."""

    __test__ = False
    agent = ""
    options: dict[str, Any] = {"hidden_sizes": (16, 16), "cnn_hidden_sizes": (16, 16)}  # noqa: RUF012
    observation: gym.Space[Any] = VECTOR
    action: gym.Space[Any] = gym.spaces.Discrete(3, start=1)

    def make_spaces(self) -> Spaces:
        return Spaces(self.observation, self.action)

    def make_agent(self, seed: int) -> Agent:
        kind = agent_type(self.agent)
        return kind.build_agent(
            kind.config(**self.options), self.make_spaces(), device="cpu", seed=seed
        )

    def make_policy(self, envs: int, seed: int) -> Policy:
        kind = agent_type(self.agent)
        return kind.build_policy(
            kind.config(**self.options),
            self.make_spaces(),
            positions=np.linspace(0, 1, envs),
            seed=seed,
        )

    def make_model(self, seed: int) -> ModelInfo:
        agent = self.make_agent(seed)
        agent.opt(self.make_batch(seed))
        return agent.model_info()


class TestDqn(Pair):
    __test__ = True
    agent = "dqn"


class TestDuelingDqnOnNestedObservations(Pair):
    __test__ = True
    agent = "dqn"
    options = {**Pair.options, "dueling": True, "double": False}  # noqa: RUF012
    observation = NESTED


class TestDqnOnImages(Pair):
    __test__ = True
    agent = "dqn"
    observation = PIXELS


class TestIqn(Pair):
    __test__ = True
    agent = "iqn"


class TestIqnOnImages(Pair):
    __test__ = True
    agent = "iqn"
    observation = PIXELS


class TestSac(Pair):
    __test__ = True
    agent = "sac"
    action = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))


class TestSacOnImages(Pair):
    __test__ = True
    agent = "sac"
    observation = PIXELS
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("agent", ["dqn", "iqn", "sac"])
def test_no_default_makes_an_agent_that_cannot_learn(agent: str) -> None:
    """border's learning rate and batch size default to 0 and 1, its critics to one."""
    config = agent_type(agent).config()
    assert config.learning_rate >= 1e-5
    assert config.batch_size >= 32
    assert getattr(config, "n_critics", 2) == 2


@pytest.mark.parametrize("agent", ["dqn", "iqn"])
def test_a_greedy_policy_takes_no_random_action(agent: str) -> None:
    """border's evaluations take one in a hundred."""
    spaces = Spaces(VECTOR, gym.spaces.Discrete(2))
    kind = agent_type(agent)
    config = kind.config(exploration={"kind": "constant", "epsilon_final": 1.0})
    model = kind.build_agent(config, spaces, device="cpu", seed=0).model_info()
    policy = kind.build_policy(config, spaces, positions=np.zeros(1), seed=0)
    policy.sync_model(model)
    obs = {"obs": np.ones((1, 4), np.float32)}
    assert len({int(policy.act(obs, explore=False)[0]) for _ in range(500)}) == 1
    assert len({int(policy.act(obs, explore=True)[0]) for _ in range(500)}) == 2


def test_acting_averages_exactly_the_quantile_fractions_asked_for() -> None:
    """border's 32 constant fractions are 33, 0 and 1 among them."""
    from vedette_rl.agents.iqn.config import IqnConfig
    from vedette_rl.agents.iqn.policy import ActingFractions

    fractions = ActingFractions(IqnConfig(n_action_quantiles=32), seed=0)
    for explore in (False, True):
        taus = fractions(explore=explore)
        assert len(taus) == 32
        assert taus.min() > 0.0 or explore
        assert taus.max() < 1.0
    np.testing.assert_allclose(fractions(explore=False), (np.arange(32) + 0.5) / 32, rtol=1e-6)
