"""DQN with memory: its step on windows beside one computed row by row, and what it refuses."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.agents.config import ImitationConfig, MunchausenConfig
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.policy import KIND
from vedette_rl.agents.dqn.recurrent import RecurrentDqnAgent
from vedette_rl.agents.recurrent_policy import RecurrentPolicy
from vedette_rl.agents.value_rescaling import rescale, restore
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import ExportError, WrongSettingsError

Batch = dict[str, torch.Tensor]

SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4))
BURN_IN, STEPS, SIZE, GAMMA = 2, 4, 6, 0.9
BURNED = [2, 0, 1]
LENGTH = [4, 2, 3]
ENDED = [False, True, False]
"""Of three sequences: one that goes on, one that terminates, and one that was truncated."""


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


def batch_of(padding: float = 0.0) -> Batch:
    """Three sequences; what lies behind their ends is `padding`."""
    rng = np.random.default_rng(5)
    steps = BURN_IN + STEPS
    batch = {
        "obs": rng.uniform(-1, 1, (3, steps + 1, 3)).astype(np.float32),
        "action": rng.integers(0, 4, (3, steps)),
        "reward": rng.normal(size=(3, steps)).astype(np.float32),
        "terminated": np.zeros((3, steps), np.bool_),
        "memory": rng.uniform(-1, 1, (3, SIZE)).astype(np.float32),
        "burned": np.array(BURNED),
        "length": np.array(LENGTH),
        "learned": np.zeros((3, steps), np.bool_),
    }
    for row, (burned, length, ended) in enumerate(zip(BURNED, LENGTH, ENDED, strict=True)):
        end = burned + length
        batch["learned"][row, burned:end] = True
        batch["obs"][row, end + 1 :] = padding
        batch["reward"][row, end:] = padding
        batch["terminated"][row, end - 1 :] = ended
    return {name: torch.from_numpy(column) for name, column in batch.items()}


def errors_row_by_row(agent: RecurrentDqnAgent, config: DqnConfig, batch: Batch) -> list[list[Any]]:
    """Each row's ``target - q``, of networks that are run one step at a time."""
    tables = []
    for network in (agent.online, agent.target):
        table = []
        for row in range(3):
            state = batch["memory"][row : row + 1]
            q = []
            for position in range(BURNED[row] + LENGTH[row] + 1):
                remember: Any = network.remember
                output: Any = network.output
                state = remember({"obs": batch["obs"][row : row + 1, position]}, state)
                if position < BURNED[row]:
                    state = state.detach()
                else:
                    q.append(output(state)[0])
            table.append(q)
        tables.append(table)
    online, targets = tables
    errors = []
    for row in range(3):
        of_row = []
        for t in range(LENGTH[row]):
            m = min(config.n_step, LENGTH[row] - t)
            first = BURNED[row] + t
            target = sum(GAMMA**k * batch["reward"][row, first + k] for k in range(m))
            if not batch["terminated"][row, first + m - 1]:
                best = (online if config.double else targets)[row][t + m].argmax()
                v = targets[row][t + m][best].detach()
                target += GAMMA**m * (restore(torch, v) if config.value_rescaling else v)
            if config.value_rescaling:
                target = rescale(torch, target)
            of_row.append(target - online[row][t][batch["action"][row, first]])
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
    batch = batch_of()
    weights = torch.tensor([1.0, 0.5, 0.25])
    errors = errors_row_by_row(other, config, batch)
    losses = [
        weight * error**2 for weight, row in zip(weights, errors, strict=True) for error in row
    ]
    loss: Any = sum(losses) / len(losses)
    loss.backward()
    result = agent.opt(batch, weights, record=True)
    assert result.record["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert result.td_errors is not None
    for error, row in zip(result.td_errors, errors, strict=True):
        sizes = torch.stack(row).detach().abs()
        assert error.item() == pytest.approx(
            float(0.9 * sizes.max() + 0.1 * sizes.mean()), rel=1e-4
        )
    ours, theirs = (
        {name: p.grad for name, p in of.online.named_parameters()} for of in (agent, other)
    )
    for name, gradient in theirs.items():
        assert gradient is not None
        torch.testing.assert_close(ours[name], gradient, rtol=1e-3, atol=1e-6)


def test_padding_changes_nothing() -> None:
    config = config_of(n_step=3, normalize_observations=True)
    first, second = agent_of(config), agent_of(config)
    results = [
        agent.opt(batch_of(padding), record=True)
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
    batch = batch_of()
    agent.opt(batch)
    firsts = np.stack([batch["obs"][row, burned].numpy() for row, burned in enumerate(BURNED)])
    mean = agent.model_info().arrays["normalizer.mean"]
    np.testing.assert_allclose(mean, firsts.mean(0), rtol=1e-5)


def test_a_step_depends_on_the_stored_memory() -> None:
    batch = batch_of()
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
    first.opt(batch_of())
    second.set_state(first.get_state())
    for agent in (first, second):
        agent.opt(batch_of())
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


def test_graphs_and_clients_of_other_languages_have_no_memory() -> None:
    config = config_of()
    assert KIND.describe is not None
    assert KIND.describe(config, SPACES) is None
    assert KIND.build_graph is not None
    with pytest.raises(ExportError, match="memory"):
        KIND.build_graph(config, SPACES, agent_of(config).model_info())
