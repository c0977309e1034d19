"""Every built-in agent and its policy keep the contracts that a user's own are held to."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from every_agent import AGENTS, OF_SAMPLES  # of tests/support

from vedette_rl.agents.iqn.policy import IqnPolicy
from vedette_rl.agents.recurrent_policy import memory_column
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, ModelInfo, Policy, RowColumn
from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing import (
    AgentContract,
    BlockAgentContract,
    PolicyContract,
    RecurrentAgentContract,
    RecurrentBlockAgentContract,
    sampled_obs,
)

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
PIXELS = gym.spaces.Box(0, 255, (2, 12, 12), np.uint8)
NESTED = gym.spaces.Dict(
    {"at": VECTOR, "of": gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.MultiBinary(2)])}
)

ROBOT = gym.spaces.Dict(
    {"front": PIXELS, "wrist": PIXELS, "joints": VECTOR, "grip": gym.spaces.Discrete(2)}
)
RAGGED = gym.spaces.MultiDiscrete([2, 4, 3], start=[0, 1, -1])


BATCHES: dict[tuple[type, int], dict[str, torch.Tensor]] = {}


class Pair(AgentContract, PolicyContract):
    """An agent's two halves."""

    __test__ = False
    agent = ""
    discount = 0.99
    options: dict[str, Any] = {  # noqa: RUF012
        **{"hidden_sizes": (16, 16), "cnn_hidden_sizes": (16, 16)},
        **{"image_features": 16, "vector_features": 16},
    }
    observation: gym.Space[Any] = VECTOR
    action: gym.Space[Any] = gym.spaces.Discrete(3, start=1)

    def make_spaces(self) -> Spaces:
        return Spaces(self.observation, self.action)

    def make_batch(self, seed: int) -> dict[str, torch.Tensor]:
        """A copy of a batch that is drawn once: spaces are slow to sample."""
        key = type(self), seed
        if key not in BATCHES:
            BATCHES[key] = super().make_batch(seed)
        return {name: column.clone() for name, column in BATCHES[key].items()}

    def make_agent(self, seed: int) -> Agent:
        kind = agent_kind(self.agent)
        return kind.build_agent(
            kind.config(**self.options), self.make_spaces(), device="cpu", seed=seed
        )

    def make_policy(self, envs: int, seed: int) -> Policy:
        kind = agent_kind(self.agent)
        return kind.build_policy(
            kind.config(**self.options),
            self.make_spaces(),
            ranks=np.linspace(0, 1, envs),
            seed=seed,
        )

    def make_model(self, seed: int) -> ModelInfo:
        agent = self.make_agent(seed)
        agent.opt(self.make_batch(seed))
        return agent.model_info()

    def test_a_saved_state_is_not_changed_by_later_steps(self) -> None:
        agent = self.make_agent(0)
        state = agent.get_state()
        kept = copy.deepcopy(state)
        for seed in range(4):
            agent.opt(self.make_batch(seed))
        torch.testing.assert_close(state, kept, rtol=0.0, atol=0.0)


class TestDqn(Pair):
    __test__ = True
    agent = "dqn"
    options = {**Pair.options, "target_update_interval": 3}  # noqa: RUF012


class TestDuelingDqnOnNestedObservations(Pair):
    __test__ = True
    agent = "dqn"
    options = {**Pair.options, "dueling": True, "double": False}  # noqa: RUF012
    observation = NESTED


class TestDqnOnImages(Pair):
    __test__ = True
    agent = "dqn"
    observation = PIXELS


class TestDqnOnCamerasAndJoints(Pair):
    __test__ = True
    agent = "dqn"
    observation = ROBOT


class TestDqnOnSeveralDimensions(Pair):
    __test__ = True
    agent = "dqn"
    action = RAGGED


class TestIqnOnSeveralDimensions(Pair):
    __test__ = True
    agent = "iqn"
    action = gym.spaces.MultiDiscrete(np.array([[3, 3], [3, 3]]))


class TestIqn(Pair):
    __test__ = True
    agent = "iqn"


class TestMunchausenDqnOnSeveralDimensions(Pair):
    __test__ = True
    agent = "dqn"
    action = RAGGED
    options = {**Pair.options, "munchausen": {"alpha": 0.9}}  # noqa: RUF012


class TestMunchausenIqn(Pair):
    __test__ = True
    agent = "iqn"
    options = {**Pair.options, "munchausen": {"alpha": 0.9}}  # noqa: RUF012


@pytest.mark.slow
class TestIqnOnImages(Pair):
    __test__ = True
    agent = "iqn"
    observation = PIXELS


class TestSac(Pair):
    __test__ = True
    plain_td_errors = False  # batch normalization is over all rows
    agent = "sac"
    action = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))


class TestSacWithTargets(Pair):
    __test__ = True
    agent = "sac"
    options = {  # noqa: RUF012
        **Pair.options,
        "normalize_observations": False,
        "critic_architecture": "layer_norm",
    }
    action = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))


class TestTd3(Pair):
    __test__ = True
    agent = "td3"
    action = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))


class TestModernSacOnNestedObservations(Pair):
    __test__ = True
    plain_td_errors = False  # the statistics of a batch are of all its rows
    agent = "sac"
    observation = NESTED
    action = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
    options = {  # noqa: RUF012
        **Pair.options,
        "normalize_observations": True,
        "critic_architecture": "layer_norm",
        "policy_architecture": "layer_norm",
        "n_critics": 3,
        "critics_in_target": 2,
        "n_quantiles": 4,
        "dropped_quantiles": 1,
    }


class TestSacWithANormalizedPolicy(Pair):
    __test__ = True
    plain_td_errors = takes_weights = False  # of statistics, two copies are not one of weight 2
    agent = "sac"
    options = {**Pair.options, "policy_batch_norm": True, "policy_delay": 1}  # noqa: RUF012
    observation = PIXELS
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


class TestSacWithBatchRenorm(Pair):
    __test__ = True
    plain_td_errors = takes_weights = False  # of statistics, two copies are not one of weight 2
    agent = "sac"
    options = {**Pair.options, "critic_architecture": "batch_renorm"}  # noqa: RUF012
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.slow
class TestSacOnImages(Pair):
    __test__ = True
    agent = "sac"
    options = {**Pair.options, "critic_architecture": "layer_norm"}  # noqa: RUF012
    observation = PIXELS
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


class TestDefaultSacOnImages(Pair):
    __test__ = True
    plain_td_errors = takes_weights = False  # of statistics, two copies are not one of weight 2
    agent = "sac"
    observation = PIXELS
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


class TestTd3WithBatchNorm(Pair):
    __test__ = True
    plain_td_errors = False
    agent = "td3"
    options = {**Pair.options, "critic_architecture": "batch_norm"}  # noqa: RUF012
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.slow
class TestSacOnCamerasAndJoints(Pair):
    __test__ = True
    agent = "sac"
    plain_td_errors = False  # the statistics of a batch are of all its rows
    options = {  # noqa: RUF012
        **Pair.options,
        "shared_cnn": True,
        "critic_architecture": "layer_norm",
    }
    observation = ROBOT
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


MEMORY_SIZE = 6


class RecurrentPair(Pair, RecurrentAgentContract):
    """The two halves of an agent with memory."""

    columns = (memory_column(MEMORY_SIZE),)
    options = {**Pair.options, "memory": "gru", "memory_size": MEMORY_SIZE}  # noqa: RUF012


class TestDqnWithMemory(RecurrentPair):
    __test__ = True
    agent = "dqn"
    columns = (memory_column(MEMORY_SIZE, "float16"),)
    options = {**RecurrentPair.options, "dueling": True, "memory_dtype": "float16"}  # noqa: RUF012


class TestIqnWithMemory(RecurrentPair):
    __test__ = True
    agent = "iqn"


@pytest.mark.slow
class TestIqnWithMemoryOnSeveralDimensions(RecurrentPair):
    __test__ = True
    agent = "iqn"
    action = RAGGED
    options = {**RecurrentPair.options, "double": False}  # noqa: RUF012


class TestSacWithMemory(RecurrentPair):
    __test__ = True
    agent = "sac"
    options = {**RecurrentPair.options, "normalize_observations": False}  # noqa: RUF012
    action = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))


@pytest.mark.slow
class TestSacWithMemoryOfItsOwn(RecurrentPair):
    __test__ = True
    begins_with_the_stored_memory = False
    agent = "sac"
    options = {  # noqa: RUF012
        **RecurrentPair.options,
        "shared_encoder": False,
        "critic_architecture": "layer_norm",
        "n_critics": 3,
        "critics_in_target": 2,
        "n_quantiles": 4,
        "dropped_quantiles": 1,
    }
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


class TestTd3WithMemory(RecurrentPair):
    __test__ = True
    agent = "td3"
    action = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))


@pytest.mark.slow
class TestTd3WithMemoryOfItsOwn(RecurrentPair):
    __test__ = True
    begins_with_the_stored_memory = False
    agent = "td3"
    options = {**RecurrentPair.options, "shared_encoder": False, "policy_delay": 1}  # noqa: RUF012
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


class OwnEncoder(torch.nn.Module):
    """An encoder in front of a core."""

    def __init__(self, observation: gym.spaces.Box) -> None:
        super().__init__()
        self.first = torch.nn.Linear(observation.shape[0], 8)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(obs))


@pytest.mark.slow
class TestSacWithMemoryBehindAnOwnEncoder(RecurrentPair):
    __test__ = True
    agent = "sac"
    options = {  # noqa: RUF012
        **RecurrentPair.options,
        "normalize_observations": False,
        "network": f"{__name__}:OwnEncoder",
    }
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.slow
class TestSacWithMemoryOfImages(RecurrentPair):
    __test__ = True
    begins_with_the_stored_memory = False  # its running statistics move
    agent = "sac"
    observation = ROBOT
    action = gym.spaces.Box(-1, 1, (2,), np.float32)


class BlockPair(Pair, BlockAgentContract):
    """The two halves of an agent that learns from a queue."""


class TestAppo(BlockPair):
    __test__ = True
    agent = "appo"
    counts_padding = True
    columns = (RowColumn("log_prob"),)


class TestAppoOnImagesWithoutCorrection(BlockPair):
    __test__ = True
    agent = "appo"
    observation = PIXELS
    columns = (RowColumn("log_prob"),)
    options = {**Pair.options, "correction": "none", "advantages": "block"}  # noqa: RUF012


class TestAppoOnABox(BlockPair):
    __test__ = True
    agent = "appo"
    action = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
    columns = (RowColumn("log_prob"), RowColumn("policy_action", shape=(2,)))
    options = {**Pair.options, "normalize_observations": False}  # noqa: RUF012


class RecurrentBlockPair(BlockPair, RecurrentBlockAgentContract):
    """The same with memory."""

    columns = (RowColumn("log_prob"), memory_column(MEMORY_SIZE))
    options = {**Pair.options, "memory": "gru", "memory_size": MEMORY_SIZE}  # noqa: RUF012


class TestAppoWithMemory(RecurrentBlockPair):
    __test__ = True
    agent = "appo"
    counts_padding = True


class TestAppoWithMemoryOnSeveralDimensions(RecurrentBlockPair):
    __test__ = True
    agent = "appo"
    action = RAGGED
    columns = (RowColumn("log_prob"), memory_column(MEMORY_SIZE, "float16"))
    options = {  # noqa: RUF012
        **RecurrentBlockPair.options,
        "memory_dtype": "float16",
        "normalize_observations": False,
    }


class TestAppoWithMemoryOfImages(RecurrentBlockPair):
    __test__ = True
    agent = "appo"
    counts_padding = True
    observation = ROBOT
    action = gym.spaces.Box(-1, 1, (2,), np.float32)
    columns = (
        RowColumn("log_prob"),
        RowColumn("policy_action", shape=(2,)),
        memory_column(MEMORY_SIZE),
    )


class TestAppoWithMemoryBehindAnOwnEncoder(RecurrentBlockPair):
    __test__ = True
    agent = "appo"
    options = {  # noqa: RUF012
        **RecurrentBlockPair.options,
        "normalize_observations": False,
        "network": f"{__name__}:OwnEncoder",
    }


def test_every_agent_is_held_to_the_contracts() -> None:
    of_blocks = {*AGENTS} - {*OF_SAMPLES}
    held = ((Pair, OF_SAMPLES), (RecurrentPair, OF_SAMPLES))
    for pairs, agents in (*held, (BlockPair, of_blocks), (RecurrentBlockPair, of_blocks)):
        assert {pair.agent for pair in pairs.__subclasses__() if pair.agent} == {*agents}


@pytest.mark.parametrize("agent", AGENTS)
def test_no_default_makes_an_agent_that_cannot_learn(agent: str) -> None:
    """border's learning rate and batch size default to 0 and 1, its critics to one."""
    config = agent_kind(agent).config()
    assert config.learning_rate >= 1e-5
    assert config.batch_size >= 32
    assert getattr(config, "n_critics", 2) == 2


@pytest.mark.parametrize("agent", ["dqn", "iqn"])
def test_a_greedy_policy_takes_no_random_action(agent: str) -> None:
    """border's evaluations take one in a hundred."""
    spaces = Spaces(VECTOR, gym.spaces.Discrete(2))
    kind = agent_kind(agent)
    explores = {"kind": "constant", "epsilon_final": 1.0}
    config = kind.config(**Pair.options, exploration=explores)
    model = kind.build_agent(config, spaces, device="cpu", seed=0).model_info()
    policy = kind.build_policy(config, spaces, ranks=np.zeros(1), seed=0)
    policy.sync_model(model)
    obs = {"obs": np.ones((1, 4), np.float32)}
    assert len({int(policy.act(obs, explore=False)[0]) for _ in range(500)}) == 1
    assert len({int(policy.act(obs, explore=True)[0]) for _ in range(500)}) == 2


@pytest.mark.parametrize("agent", ["dqn", "iqn"])
@pytest.mark.parametrize("observation", [VECTOR, PIXELS])  # policies in numpy, and in torch
def test_a_policy_explores_less_as_its_model_grows_newer(
    agent: str, observation: gym.Space[Any]
) -> None:
    spaces = Spaces(observation, gym.spaces.Discrete(2))
    rows = 1000
    kind = agent_kind(agent)
    linear = {"kind": "linear", "epsilon_final": 0.0, "epsilon_steps": 100}
    config = kind.config(**Pair.options, exploration=linear)
    model = kind.build_agent(config, spaces, device="cpu", seed=0).model_info()
    policy = kind.build_policy(config, spaces, ranks=np.zeros(rows), seed=0)
    obs = {"obs": np.ones((rows, *spaces.observation.shape), spaces.observation.dtype)}
    shares = []
    for version in (0, 50, 100):
        policy.sync_model(ModelInfo(version, model.arrays))
        # rows see the same, so that what is not random is the same in all
        shares.append(np.bincount(policy.act(obs, explore=True)).max() / rows)
    np.testing.assert_allclose(shares, [0.5, 0.75, 1.0], atol=0.06)


@pytest.mark.parametrize("observation", [VECTOR, gym.spaces.Box(0, 255, (2, 36, 36), np.uint8)])
def test_exploring_iqn_draws_its_quantile_fractions_anew_at_every_step(
    observation: gym.Space[Any],
) -> None:
    spaces = Spaces(observation, gym.spaces.Discrete(2))
    kind = agent_kind("iqn")
    never = {"kind": "constant", "epsilon_final": 0.0}  # random by its fractions alone
    config = kind.config(**Pair.options, exploration=never, n_action_quantiles=1)
    policy = kind.build_policy(config, spaces, ranks=np.zeros(50), seed=0)
    arrays = kind.build_agent(config, spaces, device="cpu", seed=0).model_info().arrays
    rng = np.random.default_rng(0)  # a new network's values are almost the same at all fractions
    steep = {name: rng.normal(size=a.shape).astype(np.float32) for name, a in arrays.items()}
    policy.sync_model(ModelInfo(1, steep))
    obs = sampled_obs(spaces.observation, 50, 0)
    exploring = {policy.act(obs, explore=True).tobytes() for _ in range(20)}
    greedy = {policy.act(obs, explore=False).tobytes() for _ in range(20)}
    assert len(exploring) > 3
    assert len(greedy) == 1


def iqn_policy(fractions: int) -> IqnPolicy:
    kind = agent_kind("iqn")
    spaces = Spaces(VECTOR, gym.spaces.Discrete(2))
    config = kind.config(n_action_quantiles=fractions)
    policy = kind.build_policy(config, spaces, ranks=np.zeros(1), seed=0)
    assert isinstance(policy, IqnPolicy)
    return policy


def test_exploring_quantile_fractions_are_uniform() -> None:
    policy = iqn_policy(8)
    drawn = np.concatenate([policy.draw_fractions() for _ in range(1000)])
    assert len(np.unique(drawn)) > 7900
    for column in drawn.T:
        np.testing.assert_allclose(np.histogram(column, 4, (0, 1))[0] / 1000, 0.25, atol=0.06)


def test_acting_averages_exactly_the_quantile_fractions_asked_for() -> None:
    """border's 32 constant fractions are 33, 0 and 1 among them."""
    policy = iqn_policy(32)
    (midpoints,) = policy.constants
    for taus in (midpoints, policy.draw_fractions()):
        assert taus.shape == (1, 32)
        assert taus.min() > 0.0 or taus is not midpoints
        assert taus.max() < 1.0
    np.testing.assert_allclose(midpoints[0], (np.arange(32) + 0.5) / 32, rtol=1e-6)


def ragged_policy(agent: str, rows: int, **exploration: Any) -> tuple[Policy, ModelInfo]:
    spaces = Spaces(VECTOR, RAGGED)
    kind = agent_kind(agent)
    config = kind.config(**Pair.options, exploration=exploration)
    policy = kind.build_policy(config, spaces, ranks=np.linspace(0, 1, rows), seed=0)
    model = kind.build_agent(config, spaces, device="cpu", seed=0).model_info()
    policy.sync_model(model)
    return policy, model


@pytest.mark.parametrize("agent", ["dqn", "iqn"])
def test_every_dimension_explores_all_of_its_actions_evenly(agent: str) -> None:
    policy, _ = ragged_policy(agent, 100, kind="constant", epsilon_final=1.0)
    obs = sampled_obs(VECTOR, 100, 0)
    drawn = np.concatenate([policy.act(obs, explore=True) for _ in range(200)])
    assert drawn.shape == (20_000, 3)
    for column, count, start in zip(drawn.T, (2, 4, 3), (0, 1, -1), strict=True):
        shares = np.bincount(column - start, minlength=count) / len(column)
        np.testing.assert_allclose(shares, 1 / count, atol=0.015)
    pairs = np.corrcoef(drawn.T)
    np.testing.assert_allclose(pairs, np.eye(3), atol=0.03)  # each by itself


def test_a_dimension_of_few_actions_is_never_asked_for_more_by_softmax() -> None:
    policy, _ = ragged_policy("dqn", 50, kind="softmax", temperature=100.0)
    obs = sampled_obs(VECTOR, 50, 0)
    drawn = np.concatenate([policy.act(obs, explore=True) for _ in range(200)])
    shares = np.bincount(drawn[:, 0], minlength=2) / len(drawn)
    np.testing.assert_allclose(shares, 0.5, atol=0.03)


@pytest.mark.parametrize("agent", ["dqn", "iqn"])
def test_greedy_actions_of_several_dimensions_are_torchs(agent: str) -> None:
    policy, model = ragged_policy(agent, 6, kind="constant")
    kind = agent_kind(agent)
    obs = sampled_obs(VECTOR, 6, 1)
    assert kind.build_graph is not None
    config = kind.config(**Pair.options)
    graph = kind.build_graph(config, Spaces(VECTOR, RAGGED), model)
    action, q = graph(torch.from_numpy(obs["obs"]))
    acted = policy.act(obs, explore=False)
    np.testing.assert_array_equal(acted, action.numpy())
    assert q.shape == (6, 9)
    best = [q[:, a:b].argmax(1).numpy() + s for a, b, s in ((0, 2, 0), (2, 6, 1), (6, 9, -1))]
    np.testing.assert_array_equal(acted, np.stack(best, axis=1))
