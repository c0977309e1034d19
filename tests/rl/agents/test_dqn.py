"""DQN learns what its papers say."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from vedette_rl.agents.dqn.agent import DqnAgent, q_learning_target
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import TdErrorPolicy, Total
from vedette_rl.core.protocols import implements
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import ModelMismatchError

MakeBatch = Callable[..., dict[str, torch.Tensor]]


def build(spaces: Spaces, seed: int = 0, **options: Any) -> DqnAgent:
    config = DqnConfig(**{"hidden_sizes": (16, 8), **options})
    return DqnAgent(config, spaces, device="cpu", seed=seed)


def weights_of(agent: DqnAgent) -> dict[str, np.ndarray]:
    return dict(agent.model_info().arrays)


def test_q_learning_target_by_hand() -> None:
    v_t = torch.tensor([4.0, 3.0, 6.0])
    r_t = torch.tensor([1.0, -1.0, 0.5])
    discount_t = torch.tensor([0.5, 0.9, 0.0])
    target = q_learning_target(r_t, discount_t, v_t)
    torch.testing.assert_close(target, torch.tensor([3.0, 1.7, 0.5]))


def test_munchausens_steps_equal_those_of_a_plain_formulation(
    vector_discrete: Spaces, make_batch: MakeBatch
) -> None:
    """As algorithm 1 of the paper; of the target network alone, and truncation bootstraps."""
    agent = build(vector_discrete, munchausen={"alpha": 0.9, "temperature": 0.1}, discount=0.9)
    another = build(vector_discrete, seed=3).get_state()["target"]
    agent.set_state({**agent.get_state(), "target": another})
    batch = make_batch(vector_discrete, 9, seed=1)
    with torch.no_grad():
        q_tm1, q_t = agent.target({"obs": batch["obs"]}), agent.target({"obs": batch["next_obs"]})
        at = torch.arange(9), batch["action"]
        tau_log_pi = q_tm1[at] - 0.1 * torch.logsumexp(q_tm1 / 0.1, dim=1)
        soft_value = 0.1 * torch.logsumexp(q_t / 0.1, dim=1)  # the same as the paper's sum
        gamma = torch.where(batch["terminated"], 0.0, 0.9 ** batch["n_steps"].float())
        target = batch["reward"] + 0.9 * tau_log_pi.clamp(-1.0, 0.0) + gamma * soft_value
        expected = (target - agent.online({"obs": batch["obs"]})[at]).abs()
    torch.testing.assert_close(agent.opt(batch).td_errors, expected)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", ["huber", "mse"])
def test_steps_equal_those_of_a_plain_formulation(
    vector_discrete: Spaces, make_batch: MakeBatch, double: bool, loss: str
) -> None:
    agent = build(
        vector_discrete,
        double=double,
        loss=loss,
        discount=0.9,
        target_update_interval=3,
        max_grad_norm=0.5,
        learning_rate=0.01,
    )
    online = nn.Sequential(
        nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    arrays = [torch.from_numpy(array) for array in agent.model_info().arrays.values()]
    for parameter, array in zip(online.parameters(), arrays, strict=True):
        parameter.data.copy_(array)
    target = copy.deepcopy(online)
    adam = torch.optim.Adam(online.parameters(), lr=0.01)
    for step in range(1, 11):
        batch = make_batch(vector_discrete, 7, seed=step)
        weights = torch.rand(7)
        total = torch.zeros(())
        td_errors = []
        for b in range(7):
            row = {name: column[b] for name, column in batch.items()}
            with torch.no_grad():
                q_next = target(row["next_obs"])
                best = int((online(row["next_obs"]) if double else q_next).argmax())
                future = 0.0 if row["terminated"] else 0.9 ** int(row["n_steps"]) * q_next[best]
            delta = row["reward"] + future - online(row["obs"])[row["action"]]
            size = delta.abs()
            quadratic = delta**2 if loss == "mse" else 0.5 * delta**2
            each = quadratic if loss == "mse" or size <= 1 else size - 0.5
            total = total + weights[b] * each / 7
            td_errors.append(size.detach())
        adam.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 0.5)
        adam.step()
        if step % 3 == 0:
            target.load_state_dict(online.state_dict())
        result = agent.opt(batch, weights, record=True)
        torch.testing.assert_close(result.td_errors, torch.stack(td_errors), rtol=1e-4, atol=1e-5)
        assert result.record["loss"] == pytest.approx(total.item(), rel=1e-4)
    for trained, array in zip(online.parameters(), agent.model_info().arrays.values(), strict=True):
        np.testing.assert_allclose(trained.detach().numpy(), array, rtol=1e-3, atol=1e-5)


def test_steps_on_several_dimensions_equal_a_plain_formulation(make_batch: MakeBatch) -> None:
    """Two dimensions, one from 2 on: the mean of their values learns, each chooses by itself."""
    space = gym.spaces.MultiDiscrete([3, 2], start=[0, 2])
    spaces = Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), space)
    agent = build(spaces, discount=0.9, target_update_interval=3, learning_rate=0.01, loss="mse")
    online = nn.Sequential(
        nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 5)
    )
    arrays = [torch.from_numpy(array) for array in agent.model_info().arrays.values()]
    for parameter, array in zip(online.parameters(), arrays, strict=True):
        parameter.data.copy_(array)
    target = copy.deepcopy(online)
    adam = torch.optim.Adam(online.parameters(), lr=0.01)
    for step in range(1, 8):
        batch = make_batch(spaces, 7, seed=step)
        deltas = []
        for b in range(7):
            row = {name: column[b] for name, column in batch.items()}
            with torch.no_grad():
                q_next, chosen = target(row["next_obs"]), online(row["next_obs"])
                v = (q_next[:3][chosen[:3].argmax()] + q_next[3:][chosen[3:].argmax()]) / 2
                future = 0.0 if row["terminated"] else 0.9 ** int(row["n_steps"]) * v
            q = online(row["obs"])
            (first, second) = row["action"].tolist()
            deltas.append(row["reward"] + future - (q[first] + q[3 + second - 2]) / 2)
        adam.zero_grad()
        loss = torch.stack(deltas).square().mean()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        adam.step()
        if step % 3 == 0:
            target.load_state_dict(online.state_dict())
        policy = agent_kind("dqn").build_policy(agent._config, spaces, ranks=np.zeros(1), seed=0)
        policy.sync_model(agent.model_info())
        result = agent.opt(batch, record=True)
        assert result.record["loss"] == pytest.approx(loss.item(), rel=1e-4)
        told = torch.stack(deltas).detach().abs()
        torch.testing.assert_close(result.td_errors, told, rtol=1e-4, atol=1e-5)
        if step == 1:  # of equal networks: as actors tell them
            columns = {name: column.numpy() for name, column in batch.items()}
            assert implements(policy, TdErrorPolicy)
            np.testing.assert_allclose(policy.td_errors(columns), told, rtol=1e-4, atol=1e-5)
    for trained, array in zip(online.parameters(), agent.model_info().arrays.values(), strict=True):
        np.testing.assert_allclose(trained.detach().numpy(), array, rtol=1e-3, atol=1e-5)


def test_truncation_bootstraps_and_termination_does_not(
    vector_discrete: Spaces, make_batch: MakeBatch
) -> None:
    batch = make_batch(vector_discrete, 8)
    no, yes = torch.zeros(8, dtype=torch.bool), torch.ones(8, dtype=torch.bool)

    def td_errors(terminated: torch.Tensor, truncated: torch.Tensor) -> torch.Tensor:
        result = build(vector_discrete).opt(
            batch | {"terminated": terminated, "truncated": truncated}
        )
        assert result.td_errors is not None
        return result.td_errors

    assert torch.equal(td_errors(no, no), td_errors(no, yes))
    assert not torch.equal(td_errors(no, no), td_errors(yes, no))


def chain() -> tuple[Spaces, dict[str, torch.Tensor], np.ndarray]:
    """Three states in a row. Action 0 leaves with reward 1; action 1 goes on, and from the last
    state it stays there with reward 2 until somebody stops it. gamma = 0.8."""
    stay = 2 / (1 - 0.8)
    q = np.array([[1.0, 0.8**2 * stay], [1.0, 0.8 * stay], [1.0, stay]], np.float32)
    eye = torch.eye(3)
    state = torch.tensor([0, 0, 1, 1, 2, 2])
    action = torch.tensor([0, 1, 0, 1, 0, 1])
    after = torch.tensor([0, 1, 1, 2, 2, 2])
    batch = {
        "obs": eye[state],
        "action": action,
        "reward": torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 2.0]),
        "next_obs": eye[after],
        "terminated": action == 0,
        "truncated": torch.tensor([False] * 5 + [True]),
        "n_steps": torch.ones(6, dtype=torch.uint8),
    }
    spaces = Spaces(gym.spaces.Box(0, 1, (3,), np.float32), gym.spaces.Discrete(2))
    return spaces, batch, q


@pytest.mark.parametrize(
    "options",
    [
        {"double": False, "loss": "mse"},
        {"dueling": True, "tau": 0.05, "target_update_interval": 1},
    ],
)
def test_finds_the_fixed_point_of_a_chain(options: dict[str, Any]) -> None:
    spaces, batch, q = chain()
    options = {"target_update_interval": 20, "learning_rate": 3e-3, "discount": 0.8} | options
    agent = build(spaces, hidden_sizes=(32, 32), **options)
    for _ in range(1500):
        agent.opt(batch)
    policy = agent_kind("dqn").build_policy(agent._config, spaces, ranks=np.zeros(3), seed=0)
    policy.sync_model(agent.model_info())
    found = policy.network({"obs": np.eye(3, dtype=np.float32)})  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, q, atol=0.1)
    assert policy.act({"obs": np.eye(3, dtype=np.float32)}, explore=False).tolist() == [1, 1, 1]


def test_a_weight_multiplies_its_samples_gradient_once(
    vector_discrete: Spaces, make_batch: MakeBatch
) -> None:
    batch = make_batch(vector_discrete, 1)

    def grad_norm(weight: float) -> float:
        agent = build(vector_discrete, loss="mse", max_grad_norm=0.0)
        return agent.opt(batch, torch.tensor([weight]), record=True).record["grad_norm"]

    assert grad_norm(0.5) == pytest.approx(0.5 * grad_norm(1.0), rel=1e-5)


def test_huber_keeps_a_gradient_for_large_errors_and_reports_them_unclipped(
    vector_discrete: Spaces, make_batch: MakeBatch
) -> None:
    batch = make_batch(vector_discrete, 4)
    batch["reward"] = torch.full((4,), 100.0)
    result = build(vector_discrete).opt(batch, record=True)
    assert result.td_errors is not None
    assert result.td_errors.min() > 90
    assert result.record["grad_norm"] > 0


def test_the_target_network_is_copied_at_its_interval(
    vector_discrete: Spaces, make_batch: MakeBatch
) -> None:
    agent = build(vector_discrete, target_update_interval=3)
    batch = make_batch(vector_discrete, 8)
    first = agent.get_state()["target"]["q.0.weight"]
    for step in range(1, 4):
        agent.opt(batch)
        state = agent.get_state()
        expected = state["online"]["q.0.weight"] if step == 3 else first
        assert torch.equal(state["target"]["q.0.weight"], expected)


def test_the_target_network_moves_softly(vector_discrete: Spaces, make_batch: MakeBatch) -> None:
    agent = build(vector_discrete, target_update_interval=1, tau=0.25)
    before = agent.get_state()["target"]["q.0.weight"]
    agent.opt(make_batch(vector_discrete, 8))
    state = agent.get_state()
    torch.testing.assert_close(
        state["target"]["q.0.weight"], 0.75 * before + 0.25 * state["online"]["q.0.weight"]
    )


def test_a_state_of_another_network_is_refused(vector_discrete: Spaces) -> None:
    state = build(vector_discrete, hidden_sizes=(16, 9)).get_state()
    with pytest.raises(ModelMismatchError, match=r"q\.1\.weight"):
        build(vector_discrete).set_state(state)


def test_weights_depend_on_the_seed_alone(vector_discrete: Spaces) -> None:
    torch.manual_seed(1)
    one = weights_of(build(vector_discrete, seed=5))
    state = torch.get_rng_state()
    other = weights_of(build(vector_discrete, seed=5))
    assert torch.equal(torch.get_rng_state(), state)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


def test_only_a_recorded_step_reads_scalars(vector_discrete: Spaces, make_batch: MakeBatch) -> None:
    agent = build(vector_discrete)
    batch = make_batch(vector_discrete, 8)
    assert agent.opt(batch).record == {}
    record = agent.opt(batch, record=True).record
    assert set(record) == {
        "loss",
        "q_mean",
        "target_mean",
        "td_error_mean",
        "grad_norm",
        "steps_left_out",
    }
    assert all(np.isfinite(value) for value in record.values())
    assert [name for name in record if isinstance(record[name], Total)] == ["steps_left_out"]


@pytest.mark.parametrize("dueling", [False, True])
def test_the_policy_in_numpy_sees_what_torch_sees(vector_discrete: Spaces, dueling: bool) -> None:
    agent = build(vector_discrete, dueling=dueling)
    policy = agent_kind("dqn").build_policy(
        agent._config, vector_discrete, ranks=np.zeros(5), seed=0
    )
    policy.sync_model(agent.model_info())
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    q = agent.online({"obs": torch.from_numpy(obs)}).detach().numpy()
    found = policy.network({"obs": obs})  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, q, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(policy.act({"obs": obs}, explore=False), q.argmax(1))


def test_a_dueling_network_adds_to_the_value_the_advantages_less_their_mean(
    vector_discrete: Spaces,
) -> None:
    agent = build(vector_discrete, dueling=True)
    policy = agent_kind("dqn").build_policy(
        agent._config, vector_discrete, ranks=np.zeros(5), seed=0
    )
    policy.sync_model(agent.model_info())
    w = weights_of(agent)

    def layer(name: str, x: np.ndarray) -> np.ndarray:
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = np.zeros((5, 3))
    for row in range(5):
        torso = np.maximum(layer("torso.0", obs[row]), 0)
        value = layer("value.1", np.maximum(layer("value.0", torso), 0))
        advantages = layer("advantage.1", np.maximum(layer("advantage.0", torso), 0))
        expected[row] = value + advantages - sum(advantages) / 3
    learned = agent.online({"obs": torch.from_numpy(obs)}).detach().numpy()
    np.testing.assert_allclose(learned, expected, rtol=1e-4, atol=1e-6)
    found = policy.network({"obs": obs})  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 3), (40, 60)])
def test_images_in_any_layout_are_learned_from_and_acted_on(
    shape: tuple[int, ...], make_batch: MakeBatch
) -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, shape, np.uint8), gym.spaces.Discrete(4))
    agent = build(spaces, cnn_hidden_sizes=(32,))
    batch = make_batch(spaces, 3)
    agent.opt(batch)
    policy = agent_kind("dqn").build_policy(agent._config, spaces, ranks=np.zeros(3), seed=0)
    policy.sync_model(agent.model_info())
    expected = agent.online({"obs": batch["obs"]}).argmax(1)
    assert policy.act({"obs": batch["obs"].numpy()}, explore=False).tolist() == expected.tolist()


def test_actions_begin_where_the_space_begins(make_batch: MakeBatch) -> None:
    spaces = Spaces(gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2, start=5))
    exploration = ExplorationConfig(kind="constant", epsilon_final=1.0)
    agent = build(spaces, exploration=exploration)
    agent.opt(make_batch(spaces, 8))
    policy = agent_kind("dqn").build_policy(agent._config, spaces, ranks=np.zeros(50), seed=0)
    policy.sync_model(agent.model_info())
    obs = {"obs": np.zeros((50, 2), np.float32)}
    assert set(policy.act(obs, explore=True).tolist()) == {5, 6}
    assert set(policy.act(obs, explore=False).tolist()) <= {5, 6}


def test_a_policy_refuses_to_act_before_its_first_model(vector_discrete: Spaces) -> None:
    policy = agent_kind("dqn").build_policy(DqnConfig(), vector_discrete, ranks=np.zeros(1), seed=0)
    with pytest.raises(ModelMismatchError, match="got nothing"):
        policy.act({"obs": np.zeros((1, 4), np.float32)}, explore=False)


def test_a_policy_refuses_another_networks_model_and_keeps_its_own(
    vector_discrete: Spaces,
) -> None:
    agent = build(vector_discrete)
    policy = agent_kind("dqn").build_policy(
        agent._config, vector_discrete, ranks=np.zeros(1), seed=0
    )
    policy.sync_model(agent.model_info())
    obs = {"obs": np.ones((1, 4), np.float32)}
    action = policy.act(obs, explore=False)
    with pytest.raises(ModelMismatchError, match=r"q\.0\.weight"):
        policy.sync_model(build(vector_discrete, hidden_sizes=(9, 8)).model_info())
    with pytest.raises(ModelMismatchError):
        policy.sync_model(build(vector_discrete, dueling=True).model_info())
    assert policy.act(obs, explore=False) == action
