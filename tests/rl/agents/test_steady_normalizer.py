"""Statistics of observations that move no further than the policy may."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from blocks import minibatches, random_block  # of tests/support

from vedette_rl.agents.actions import BoxActions, DiscreteActions
from vedette_rl.agents.appo.agent import AppoAgent
from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.appo.distributions import distribution_of
from vedette_rl.agents.appo.policy import KIND
from vedette_rl.agents.appo.steady_normalizer import SteadyNormalizer
from vedette_rl.agents.recurrent_policy import memory_column
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.layers import MEAN, SCALE, NormalizedColumns
from vedette_rl.networks.torch_network import ObsNormalizer

COLUMNS = NormalizedColumns((("obs", (2,)),))
VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
ACTIONS = [
    gym.spaces.Discrete(3),
    gym.spaces.MultiDiscrete([2, 4, 3], start=[0, 1, -1]),
    gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10])),
]


def rows(mean: float, deviation: float, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"obs": mean + deviation * torch.randn(500, 2, generator=generator)}


def used(normalizer: SteadyNormalizer) -> dict[str, np.ndarray[Any, Any]]:
    return dict(normalizer.pending_arrays().value)


def test_padding_does_not_count() -> None:
    obs = {"obs": torch.tensor([[1.0, 0.0], [3.0, 4.0], [100.0, 100.0], [2.0, 2.0]])}
    steady, plain = SteadyNormalizer(COLUMNS, "cpu", 0.003), ObsNormalizer(COLUMNS, "cpu")
    steady.update(obs, lambda: torch.tensor(0.0), torch.tensor([1.0, 1.0, 0.0, 1.0]))
    plain.update({"obs": obs["obs"][[0, 1, 3]]})
    for name, array in plain.arrays().items():
        np.testing.assert_allclose(used(steady)[name], array, rtol=1e-6)


@pytest.mark.parametrize("space", ACTIONS)
def test_a_block_of_unlike_runs_is_counted_without_its_padding(space: gym.Space[Any]) -> None:
    spaces = Spaces(VECTOR, space)
    config = AppoConfig(normalizer_kl=1e9)
    agent = KIND.build_agent(config, spaces, device="cpu", seed=0)
    block = random_block(spaces, 4, 6, 0)
    assert not block["learned"].all()
    for batch in minibatches(block, passes=1, size=24):
        agent.opt(batch)
    learned = block["obs"][block["learned"].bool()]
    np.testing.assert_allclose(agent.get_state()["observed"]["mean"], learned.mean(0), atol=1e-6)


def test_they_are_those_of_all_blocks_where_nothing_hinders() -> None:
    steady, plain = SteadyNormalizer(COLUMNS, "cpu", 0.003), ObsNormalizer(COLUMNS, "cpu")
    for seed in range(3):
        steady.update(rows(5.0, 3.0, seed), lambda: torch.tensor(0.0))
        plain.update(rows(5.0, 3.0, seed))
    for name, array in plain.arrays().items():
        np.testing.assert_allclose(used(steady)[name], array, rtol=1e-6)


@pytest.mark.parametrize(
    ("allowed", "share"),
    [(1e9, 1.0), (2.6, 0.5), (1.0, 0.25), (0.011, 1 / 32), (1e-7, 2**-14), (1e-8, 0.0)],
)
def test_they_go_as_much_of_the_way_as_is_allowed(allowed: float, share: float) -> None:
    """A policy that moves by the square of how far the mean does: 10 in all."""
    steady, plain = SteadyNormalizer(COLUMNS, "cpu", allowed), ObsNormalizer(COLUMNS, "cpu")
    plain.update(rows(5.0, 3.0))
    whole = plain.arrays()

    def divergence() -> torch.Tensor:
        gone = used(steady)[MEAN][0] / whole[MEAN][0]
        return torch.tensor(10.0 * gone**2)

    steady.update(rows(5.0, 3.0), divergence)
    np.testing.assert_allclose(used(steady)[MEAN], share * whole[MEAN], rtol=1e-6)
    np.testing.assert_allclose(used(steady)[SCALE], whole[SCALE] ** share, rtol=1e-6)


def test_they_arrive_in_the_end() -> None:
    steady, plain = SteadyNormalizer(COLUMNS, "cpu", 0.1), ObsNormalizer(COLUMNS, "cpu")
    for seed in range(200):
        before = used(steady)[MEAN].copy()

        def divergence(before: Any = before) -> torch.Tensor:
            return torch.tensor(float(np.abs(used(steady)[MEAN] - before).max()))

        steady.update(rows(5.0, 3.0, seed), divergence)
        plain.update(rows(5.0, 3.0, seed))
    for name, array in plain.arrays().items():
        np.testing.assert_allclose(used(steady)[name], array, rtol=1e-3)


def test_they_stay_where_the_policy_is_not_finite() -> None:
    steady = SteadyNormalizer(COLUMNS, "cpu", 0.003)
    steady.update(rows(5.0, 3.0), lambda: torch.tensor(float("nan")))
    assert used(steady)[MEAN].tolist() == [0.0, 0.0]
    assert used(steady)[SCALE].tolist() == [1.0, 1.0]


def sharp_agent(action: gym.Space[Any], **options: Any) -> AppoAgent:
    """One whose policy depends on the observation."""
    config = AppoConfig(hidden_sizes=(16,), learning_rate=1e-12, **options)
    agent = KIND.build_agent(config, Spaces(VECTOR, action), device="cpu", seed=0)
    assert isinstance(agent, AppoAgent)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in agent.network.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    return agent


@pytest.mark.parametrize("memory", [{}, {"memory": "gru", "memory_size": 8}], ids=["", "gru"])
@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_a_policy_moves_no_further_than_it_may(action: gym.Space[Any], memory: Any) -> None:
    moved = {}
    for allowed in (0.003, 1e9):
        agent = sharp_agent(action, normalizer_kl=allowed, **memory)
        further = [memory_column(8)] if memory else []
        block = random_block(Spaces(VECTOR, action), 4, 4, 0, further)
        block["obs"] = 3.0 + 0.5 * block["obs"]
        batches = list(minibatches(block, passes=1, size=16, whole_runs=True))
        whole = batches[-1]
        places = torch.arange(16)
        flat = {"obs": block["obs"].flatten(0, 1)}
        before = agent.evaluate(whole, flat, places).policy.detach()
        for batch in batches:
            agent.opt(batch)
        after = agent.evaluate(whole, flat, places).policy.detach()
        divergence_R = agent._distribution.divergence(before, after)
        moved[allowed] = float(divergence_R[block["learned"].flatten()].mean())
    assert moved[0.003] <= 0.003 * 1.01
    assert moved[1e9] > 0.03


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_divergences_are_those_of_torch(action: gym.Space[Any]) -> None:
    kind = BoxActions if isinstance(action, gym.spaces.Box) else DiscreteActions
    mine = distribution_of(kind.from_space("appo", action), AppoConfig(), "cpu")
    size = {"Discrete": 3, "MultiDiscrete": 9, "Box": 4}[type(action).__name__]
    one, other = 0.5 * torch.randn(2, 50, size, generator=torch.Generator().manual_seed(1))
    expected = sum(
        torch.distributions.kl_divergence(p, q)
        for p, q in zip(_of_torch(action, one), _of_torch(action, other), strict=True)
    )
    torch.testing.assert_close(mine.divergence(one, other), expected, rtol=1e-4, atol=1e-5)
    assert mine.divergence(one, one).abs().max() < 1e-6


def _of_torch(
    action: gym.Space[Any], output: torch.Tensor
) -> list[torch.distributions.Distribution]:
    if isinstance(action, gym.spaces.Box):
        mean, log_std = output.chunk(2, dim=1)
        return [torch.distributions.Normal(mean[:, k], log_std[:, k].exp()) for k in range(2)]
    sizes = action.nvec.tolist() if isinstance(action, gym.spaces.MultiDiscrete) else [3]
    return [torch.distributions.Categorical(logits=part) for part in output.split(sizes, dim=1)]


def test_they_resume() -> None:
    block = random_block(Spaces(VECTOR, ACTIONS[0]), 4, 4, 0)
    agents = [sharp_agent(ACTIONS[0]) for _ in range(2)]
    batches = list(minibatches(block, passes=1, size=16))
    agents[0].opt(batches[0])
    agents[1].set_state(copy.deepcopy(agents[0].get_state()))
    for agent in agents:
        for batch in minibatches(block, passes=1, size=16):
            agent.opt(batch)
    models = [agent.model_info().arrays for agent in agents]
    for name, array in models[0].items():
        np.testing.assert_array_equal(array, models[1][name])
