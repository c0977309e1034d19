"""DQN with memory: its step on windows beside one computed row by row, and what it refuses."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hand_made_windows import (  # of tests/support
    BURN_IN,
    BURNED,
    GAMMA,
    LENGTH,
    SIZE,
    STEPS,
    Batch,
    assert_errors,
    assert_gradients,
    batch_of,
    mean_of,
    memories,
    return_of,
)
from numpy.typing import NDArray

from vedette_rl.agents.config import ImitationConfig, MunchausenConfig
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.policy import KIND
from vedette_rl.agents.dqn.recurrent import RecurrentDqnAgent
from vedette_rl.agents.recurrent_policy import RecurrentPolicy
from vedette_rl.agents.value_rescaling import rescale, restore
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import WrongSettingsError

SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4))


def config_of(**settings: Any) -> DqnConfig:
    usual = {"hidden_sizes": (8,), "discount": GAMMA, "loss": "mse"}
    return DqnConfig(memory="gru", memory_size=SIZE, **{**usual, **settings})


def agent_of(config: DqnConfig, *, told: bool = True) -> RecurrentDqnAgent:
    """An agent whose target network has other weights than the online one."""
    agent = KIND.build_agent(config, SPACES, device="cpu", seed=1)
    assert isinstance(agent, RecurrentDqnAgent)
    other = KIND.build_agent(config, SPACES, device="cpu", seed=2)
    agent.set_state({**agent.get_state(), "target": other.get_state()["target"]})
    if told:
        agent.expect_burn_in(BURN_IN)
    return agent


def drawn_actions(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
    return rng.integers(0, 4, shape)


def errors_row_by_row(agent: RecurrentDqnAgent, config: DqnConfig, batch: Batch) -> list[list[Any]]:
    """Each row's ``target - q``, of networks that are run one step at a time."""
    tables = []
    for network in (agent.online, agent.target):
        output: Any = network.output
        tables.append([[output(y)[0] for y in row] for row in memories(network, batch)])
    online, targets = tables
    errors = []
    for row in range(3):
        of_row = []
        for t in range(LENGTH[row]):
            target, m, terminated = return_of(batch, row, t, config.n_step)
            if not terminated:
                best = (online if config.double else targets)[row][t + m].argmax()
                v = targets[row][t + m][best].detach()
                target += GAMMA**m * (restore(torch, v) if config.value_rescaling else v)
            if config.value_rescaling:
                target = rescale(torch, target)
            taken = batch["action"][row, BURNED[row] + t]
            of_row.append(target - online[row][t][taken])
        errors.append(of_row)
    return errors


@pytest.mark.parametrize(
    "settings",
    [
        {"n_step": 1},
        {"n_step": 3, "value_rescaling": True},
        {"n_step": 5, "double": False, "dueling": True},
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_a_step_is_that_of_networks_run_row_by_row(settings: dict[str, Any], told: bool) -> None:
    config = config_of(**settings)
    agent, other = agent_of(config, told=told), agent_of(config)
    batch = batch_of(drawn_actions)
    weights = torch.tensor([1.0, 0.5, 0.25])
    errors = errors_row_by_row(other, config, batch)
    loss = mean_of(weights, [[error**2 for error in row] for row in errors])
    loss.backward()
    result = agent.opt(batch, weights, record=True)
    assert result.record["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert_errors(result.td_errors, errors)
    assert_gradients(agent.online, other.online)


def test_padding_changes_nothing() -> None:
    config = config_of(n_step=3, normalize_observations=True)
    first, second = agent_of(config), agent_of(config)
    results = [
        agent.opt(batch_of(drawn_actions, padding), record=True)
        for agent, padding in ((first, 0.0), (second, 1e3))
    ]
    assert results[0].td_errors is not None
    assert results[1].td_errors is not None
    torch.testing.assert_close(results[0].td_errors, results[1].td_errors, rtol=0, atol=0)
    for name in ("loss", "q_mean", "target_mean", "grad_norm"):
        assert results[0].record[name] == results[1].record[name]
    for name, array in first.model_info().arrays.items():
        np.testing.assert_array_equal(second.model_info().arrays[name], array)


def test_the_statistics_count_the_first_row_of_each_window() -> None:
    agent = agent_of(config_of(normalize_observations=True))
    batch = batch_of(drawn_actions)
    agent.opt(batch)
    firsts = np.stack([batch["obs"][row, burned].numpy() for row, burned in enumerate(BURNED)])
    mean = agent.model_info().arrays["normalizer.mean"]
    np.testing.assert_allclose(mean, firsts.mean(0), rtol=1e-5)


def test_a_step_depends_on_the_stored_memory() -> None:
    batch = batch_of(drawn_actions)
    first = agent_of(config_of()).opt(batch).td_errors
    second = agent_of(config_of()).opt({**batch, "memory": batch["memory"] * 0}).td_errors
    assert first is not None
    assert second is not None
    assert (first != second).all()


def test_acting_gives_the_choices_of_the_learner() -> None:
    config = config_of()
    agent = agent_of(config)
    policy = KIND.build_policy(config, SPACES, ranks=np.zeros(3), seed=0)
    assert isinstance(policy, RecurrentPolicy)
    policy.sync_model(agent.model_info())
    obs = np.random.default_rng(0).uniform(-1, 1, (3, STEPS + 1, 3)).astype(np.float32)
    q = agent.online(
        {"obs": torch.from_numpy(obs)}, torch.zeros(3, SIZE), torch.zeros(3).long(), 0, STEPS
    )
    learned = q.view(3, STEPS + 1, 4).argmax(2).numpy()
    for step in range(STEPS + 1):
        begins = np.full(3, step == 0)
        acted = policy.act({"obs": obs[:, step]}, explore=False, begins=begins)
        np.testing.assert_array_equal(acted, learned[:, step])


def test_it_learns_on_from_its_state() -> None:
    first, second = agent_of(config_of()), agent_of(config_of())
    first.opt(batch_of(drawn_actions))
    second.set_state(first.get_state())
    for agent in (first, second):
        agent.opt(batch_of(drawn_actions))
    for name, array in first.model_info().arrays.items():
        np.testing.assert_array_equal(second.model_info().arrays[name], array)


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"munchausen": MunchausenConfig(alpha=0.9)}, "set munchausen.alpha=0"),
        ({"imitation": ImitationConfig(loss="margin")}, "set imitation.loss=none"),
        ({"network": "mine:Network"}, "set network=auto"),
    ],
)
def test_what_is_not_built_beside_memory_is_refused(settings: dict[str, Any], fix: str) -> None:
    with pytest.raises(WrongSettingsError, match=fix):
        config_of(**settings)


def test_clients_of_other_languages_are_told_of_the_core() -> None:
    config = config_of()
    assert KIND.describe is not None
    described = KIND.describe(config, SPACES)
    assert described is not None
    name, layers = described["networks"][0]
    assert name == "q"
    assert layers[0][0] == "gru"
    assert layers[0][-1] == config.memory_size
