"""Recurrent cores: the equations, numpy beside torch, and burn-in over windows."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.network import QLayers
from vedette_rl.core.learning import ModelInfo
from vedette_rl.errors import ModelMismatchError
from vedette_rl.networks.acting_network import BoundNetwork
from vedette_rl.networks.config import MemoryConfig
from vedette_rl.networks.core import GruSizes, NumpyGru
from vedette_rl.networks.numpy_nets import RecurrentNumpyNetwork
from vedette_rl.networks.observation import choose_input
from vedette_rl.networks.torch_network import (
    RecurrentNetwork,
    RecurrentTorchActingNetwork,
    build_network,
)

OBSERVATION = gym.spaces.Box(-1, 1, (3,), np.float32)


class Config(DqnConfig, MemoryConfig):
    """DQN's network, which may have a core."""


CONFIG = Config(memory="gru", memory_size=5, hidden_sizes=(8,), dueling=True)
ACTIONS = 4


def network() -> RecurrentNetwork:
    torch.manual_seed(3)
    made = build_network(CONFIG, OBSERVATION, QLayers, ACTIONS)
    assert isinstance(made, RecurrentNetwork)
    return made


def arrays_of(made: torch.nn.Module) -> dict[str, NDArray[Any]]:
    return {name: p.detach().numpy().copy() for name, p in made.named_parameters()}


def acting_networks() -> tuple[RecurrentNumpyNetwork, RecurrentTorchActingNetwork]:
    made = network()
    seen = choose_input(CONFIG, OBSERVATION)
    assert isinstance(seen, tuple)
    in_numpy = RecurrentNumpyNetwork(CONFIG, seen, QLayers, ACTIONS)
    in_torch = RecurrentTorchActingNetwork(made)
    model = ModelInfo(1, arrays_of(made))
    in_numpy.sync_model(model)
    in_torch.sync_model(model)
    return in_numpy, in_torch


def test_a_step_is_that_of_the_equations() -> None:
    rng = np.random.default_rng(0)
    sizes = GruSizes(1, 2)
    arrays = {name: rng.normal(size=shape) for name, shape in sizes.shapes.items()}
    w, u, b, c = arrays.values()
    x, h = 0.7, np.array([0.3, -0.6])

    def sigmoid(v: float) -> float:
        return float(1 / (1 + np.exp(-v)))

    expected = []
    for k in range(2):
        gates = [
            (w[row, 0] * x + b[row], u[row, 0] * h[0] + u[row, 1] * h[1] + c[row])
            for row in (k, 2 + k, 4 + k)
        ]
        r = sigmoid(sum(gates[0]))
        z = sigmoid(sum(gates[1]))
        n = float(np.tanh(gates[2][0] + r * gates[2][1]))
        expected.append((1 - z) * n + z * h[k])
    float32 = {name: array.astype(np.float32) for name, array in arrays.items()}
    given = np.array([[x]], np.float32), h[None].astype(np.float32)
    np.testing.assert_allclose(NumpyGru(float32)(*given)[0], expected, rtol=1e-6)


def test_gates_of_any_size_overflow_nowhere() -> None:
    arrays = {n: np.full(s, 1e30, np.float32) for n, s in GruSizes(1, 2).shapes.items()}
    state = NumpyGru(arrays)(np.array([[-1.0]], np.float32), np.ones((1, 2), np.float32))
    assert np.isfinite(state).all()


def test_numpy_acts_as_torch_over_fifty_steps_with_beginnings() -> None:
    in_numpy, in_torch = acting_networks()
    assert in_numpy.shapes == in_torch.shapes
    rng = np.random.default_rng(1)
    ours, theirs = BoundNetwork(in_numpy), BoundNetwork(in_torch)
    states = [np.zeros((6, 5), np.float32)] * 2
    for _ in range(50):
        obs = {"obs": rng.normal(size=(6, 3)).astype(np.float32)}
        begins = rng.random(6) < 0.1
        states = [np.where(begins[:, None], np.float32(0), state) for state in states]
        for bound, state in zip((ours, theirs), states, strict=True):
            bound.bind(state)
        np.testing.assert_allclose(ours(obs), theirs(obs), atol=1e-6)
        states = [ours.memory, theirs.memory]
        np.testing.assert_allclose(*states, atol=1e-6)
    assert np.abs(states[0]).min() > 0


def test_a_bound_network_computes_its_core_once() -> None:
    bound = BoundNetwork(acting_networks()[0])
    bound.bind(np.zeros((1, 5), np.float32))
    obs = {"obs": np.ones((1, 3), np.float32)}
    first = bound(obs)
    after = bound.memory
    np.testing.assert_array_equal(bound(obs), first)
    assert bound.memory is after
    bound.bind(after)
    assert not np.array_equal(bound(obs), first), "the memory of the first observation is in it"


def test_without_a_model_there_is_none_to_act_on() -> None:
    seen = choose_input(CONFIG, OBSERVATION)
    assert isinstance(seen, tuple)
    for unsynced in (
        RecurrentNumpyNetwork(CONFIG, seen, QLayers, ACTIONS),
        RecurrentTorchActingNetwork(network()),
    ):
        with pytest.raises(ModelMismatchError, match="nothing"):
            BoundNetwork(unsynced)({"obs": np.ones((1, 3), np.float32)})


@pytest.mark.parametrize("burned", [[0, 1, 3], [3, 3, 3], [0, 0, 0]])
def test_windows_are_what_acting_step_by_step_gives(burned: list[int]) -> None:
    """From the stored memory on, through burn-in, to the position behind the last row."""
    burn_in, steps = 3, 4
    learning = network()
    acting, _ = acting_networks()
    rng = np.random.default_rng(2)
    obs = rng.normal(size=(3, burn_in + steps + 1, 3)).astype(np.float32)
    memory = rng.uniform(-1, 1, (3, 5)).astype(np.float32)
    given = {"obs": torch.from_numpy(obs)}, torch.from_numpy(memory), torch.tensor(burned)
    q = learning(*given, burn_in, steps).view(3, steps + 1, ACTIONS)
    bound = BoundNetwork(acting)
    for row, first in enumerate(burned):
        state = memory[row : row + 1]
        for position in range(first + steps + 1):
            bound.bind(state)
            expected = bound({"obs": obs[row : row + 1, position]})
            state = bound.memory
            if position >= first:
                got = q[row, position - first].detach().numpy()
                np.testing.assert_allclose(got, expected[0], atol=1e-6)


def test_burn_in_has_no_gradient() -> None:
    learning = network()
    obs = torch.randn(2, 6, 3, requires_grad=True)
    learning({"obs": obs}, torch.zeros(2, 5), torch.tensor([2, 0]), 2, 3).sum().backward()
    assert obs.grad is not None
    reached = obs.grad.abs().sum(-1) > 0
    assert reached[0].tolist() == [False, False, True, True, True, True]
    assert reached[1].tolist() == [True, True, True, True, False, False]
