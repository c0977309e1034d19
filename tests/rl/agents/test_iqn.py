"""IQN learns what its paper says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.agents.iqn.agent import IqnAgent
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Policy
from vedette_rl.envs.spaces import Spaces

MakeBatch = Callable[..., dict[str, torch.Tensor]]


def build(spaces: Spaces, seed: int = 0, **options: Any) -> IqnAgent:
    config = IqnConfig(**{"hidden_sizes": (16, 12), "n_cosines": 8, **options})
    return IqnAgent(config, spaces, device="cpu", seed=seed)


def policy_for(agent: IqnAgent, spaces: Spaces, rows: int) -> Policy:
    policy = agent_kind("iqn").build_policy(agent._config, spaces, ranks=np.zeros(rows), seed=0)
    policy.sync_model(agent.model_info())
    return policy


def test_the_cosine_embedding_begins_at_zero(vector_discrete: Spaces) -> None:
    cosines = build(vector_discrete).online.cosines
    np.testing.assert_allclose(cosines.numpy(), math.pi * np.arange(8), rtol=1e-6)


def test_the_network_equals_a_plain_formulation(vector_discrete: Spaces) -> None:
    agent = build(vector_discrete)
    w = dict(agent.model_info().arrays)
    obs = np.array([0.5, -1.0, 2.0, 0.1], np.float32)

    def relu(x: Any) -> Any:
        return np.maximum(x, 0)

    for tau in (0.0, 0.3, 0.9):
        psi = relu(w["psi.0.weight"] @ obs + w["psi.0.bias"])
        cosine = np.array([math.cos(math.pi * i * tau) for i in range(8)])
        phi = relu(w["phi.0.weight"] @ cosine + w["phi.0.bias"])
        hidden = relu(w["f.0.weight"] @ (psi * phi) + w["f.0.bias"])
        expected = w["f.1.weight"] @ hidden + w["f.1.bias"]
        z = agent.online(
            {"obs": torch.from_numpy(obs[None])}, torch.tensor([[tau]], dtype=torch.float32)
        )
        np.testing.assert_allclose(z[0, 0].detach().numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_targets_equal_those_of_a_plain_formulation(
    vector_discrete: Spaces, make_batch: MakeBatch, double: bool
) -> None:
    agent = build(vector_discrete, double=double, discount=0.9)
    another = build(vector_discrete, seed=2).get_state()["online"]
    agent.set_state({**agent.get_state(), "online": another})
    batch = make_batch(vector_discrete, 6, seed=1)
    taus = torch.Generator().set_state(agent.get_state()["taus"])
    taus_K = torch.rand((6, 32), generator=taus)
    taus_M = torch.rand((6, 8), generator=taus)
    found = agent._target_samples(batch, {"obs": batch["obs"]})
    by_online, by_target = (
        network({"obs": batch["next_obs"]}, taus_K).mean(1).argmax(1).tolist()
        for network in (agent.online, agent.target)
    )
    assert by_online != by_target  # so that it matters who chooses
    for b in range(6):
        obs = {"obs": batch["next_obs"][b : b + 1]}
        best = (by_online if double else by_target)[b]
        z = agent.target(obs, taus_M[b : b + 1])[0, :, best]
        discount = 0.0 if batch["terminated"][b] else 0.9 ** int(batch["n_steps"][b])
        torch.testing.assert_close(found[b], batch["reward"][b] + discount * z)


def test_munchausens_targets_equal_those_of_a_plain_formulation(
    vector_discrete: Spaces, make_batch: MakeBatch
) -> None:
    agent = build(vector_discrete, munchausen={"alpha": 0.9, "temperature": 0.2}, discount=0.9)
    batch = make_batch(vector_discrete, 6, seed=1)
    taus = torch.Generator().set_state(agent.get_state()["taus"])
    taus_K, taus_M, taus_L = (torch.rand((6, n), generator=taus) for n in (32, 8, 32))
    found = agent._target_samples(batch, {"obs": batch["obs"]})
    with torch.no_grad():
        log_pi_tm1, log_pi_t = (
            (agent.target({"obs": batch[obs]}, fractions).mean(1) / 0.2).log_softmax(1)
            for obs, fractions in (("obs", taus_L), ("next_obs", taus_K))
        )
        z_t = agent.target({"obs": batch["next_obs"]}, taus_M)
    for b in range(6):
        soft = 0.2 * log_pi_tm1[b, batch["action"][b]]
        reward = batch["reward"][b] + 0.9 * soft.clamp(-1.0, 0.0)
        discount = 0.0 if batch["terminated"][b] else 0.9 ** int(batch["n_steps"][b])
        for m in range(8):
            value = (log_pi_t[b].exp() * (z_t[b, m] - 0.2 * log_pi_t[b])).sum()
            torch.testing.assert_close(found[b, m], reward + discount * value)


def plain_z(w: dict[str, torch.Tensor], obs: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    """Z_tau(s, .) ``(A,)`` of one observation and one fraction."""
    psi = torch.relu(w["psi.0.weight"] @ obs + w["psi.0.bias"])
    cosines = torch.stack([torch.cos(math.pi * i * tau) for i in range(8)])
    phi = torch.relu(w["phi.0.weight"] @ cosines + w["phi.0.bias"])
    hidden = torch.relu(w["f.0.weight"] @ (psi * phi) + w["f.0.bias"])
    return w["f.1.weight"] @ hidden + w["f.1.bias"]


def plain_losses(
    online: dict[str, torch.Tensor],
    target: dict[str, torch.Tensor],
    batch: dict[str, torch.Tensor],
    taus: torch.Generator,
    double: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each sample's loss and TD error, of K = 5, M = 3, N = 4, kappa = 0.5 and gamma = 0.9."""
    rows = len(batch["reward"])
    taus_K, taus_M, taus_N = (torch.rand((rows, n), generator=taus) for n in (5, 3, 4))
    losses, td_errors = [], []
    for b in range(rows):
        selector = online if double else target
        next_obs = batch["next_obs"][b]
        best = torch.stack([plain_z(selector, next_obs, tau) for tau in taus_K[b]]).mean(0).argmax()
        gamma = 0.0 if batch["terminated"][b] else 0.9 ** int(batch["n_steps"][b])
        y = [
            batch["reward"][b] + gamma * plain_z(target, next_obs, tau)[best].detach()
            for tau in taus_M[b]
        ]
        z = [plain_z(online, batch["obs"][b], tau)[batch["action"][b]] for tau in taus_N[b]]
        loss = torch.zeros(())
        for tau, prediction in zip(taus_N[b], z, strict=True):
            for sample in y:
                delta = sample - prediction
                inside = delta.abs() <= 0.5
                huber = delta**2 / 2 if inside else 0.5 * (delta.abs() - 0.25)
                loss = loss + (tau - (delta < 0).float()).abs() * huber / 0.5 / 3
        losses.append(loss)
        td_errors.append((sum(y) / 3 - sum(z).detach() / 4).abs())
    return torch.stack(losses), torch.stack(td_errors)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.5])
def test_steps_equal_those_of_a_plain_formulation(
    vector_discrete: Spaces, make_batch: MakeBatch, double: bool, max_grad_norm: float
) -> None:
    agent = build(
        vector_discrete,
        n_quantiles=4,
        n_target_quantiles=3,
        n_action_quantiles=5,
        kappa=0.5,
        discount=0.9,
        double=double,
        learning_rate=0.01,
        adam_eps=0.01 / 32,
        max_grad_norm=max_grad_norm,
        target_update_interval=3,
        tau=0.5,
    )
    state = agent.get_state()
    online = {name: value.clone().requires_grad_() for name, value in state["online"].items()}
    target = {name: value.clone() for name, value in state["target"].items()}
    adam = torch.optim.Adam(online.values(), lr=0.01, eps=0.01 / 32)
    taus = torch.Generator().set_state(state["taus"])
    for step in range(1, 9):
        batch = make_batch(vector_discrete, 6, seed=step)
        weights = torch.rand(6)
        losses, td_errors = plain_losses(online, target, batch, taus, double)
        adam.zero_grad()
        loss = (weights * losses).sum() / 6
        torch.autograd.backward(loss)
        if max_grad_norm:
            torch.nn.utils.clip_grad_norm_(online.values(), max_grad_norm)
        adam.step()
        if step % 3 == 0:
            for name, value in online.items():
                target[name] = (target[name] + value.detach()) / 2
        result = agent.opt(batch, weights, record=True)
        torch.testing.assert_close(result.td_errors, td_errors, rtol=1e-3, atol=1e-4)
        assert result.record["loss"] == pytest.approx(loss.item(), rel=1e-3)
    for name, value in online.items():
        np.testing.assert_allclose(
            agent.model_info().arrays[name], value.detach().numpy(), rtol=1e-2, atol=1e-4
        )


def test_learns_the_quantiles_of_a_random_reward() -> None:
    """Reward -1 or 3 with equal chances: quantiles below 1/2 are -1, above it 3, their mean 1."""
    spaces = Spaces(gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Discrete(2))
    agent = build(
        spaces, hidden_sizes=(32, 32), n_cosines=32, kappa=0.1, learning_rate=3e-3, adam_eps=1e-8
    )
    batch = {
        "obs": torch.ones(32, 1),
        "action": torch.zeros(32, dtype=torch.int64),
        "reward": torch.tensor([-1.0, 3.0]).repeat(16),
        "next_obs": torch.ones(32, 1),
        "terminated": torch.ones(32, dtype=torch.bool),
        "truncated": torch.zeros(32, dtype=torch.bool),
        "n_steps": torch.ones(32, dtype=torch.uint8),
    }
    for _ in range(800):
        agent.opt(batch)
    taus = torch.tensor([[0.1, 0.25, 0.75, 0.9]])
    z = agent.online({"obs": torch.ones(1, 1)}, taus)[0, :, 0].detach().numpy()
    np.testing.assert_allclose(z, [-1, -1, 3, 3], atol=0.3)
    grid = (torch.arange(32) + 0.5)[None] / 32
    assert agent.online({"obs": torch.ones(1, 1)}, grid)[0, :, 0].mean().item() == pytest.approx(
        1.0, abs=0.25
    )


def test_finds_the_fixed_point_of_a_chain() -> None:
    """Three states in a row: leave for 1, or go on to where every step pays 2. gamma = 0.8."""
    spaces = Spaces(gym.spaces.Box(0, 1, (3,), np.float32), gym.spaces.Discrete(2))
    q = np.array([[1.0, 6.4], [1.0, 8.0], [1.0, 10.0]])
    agent = build(
        spaces,
        hidden_sizes=(32, 32),
        discount=0.8,
        learning_rate=3e-3,
        adam_eps=1e-8,
        target_update_interval=20,
    )
    eye = torch.eye(3)
    action = torch.tensor([0, 1] * 3)
    batch = {
        "obs": eye[torch.tensor([0, 0, 1, 1, 2, 2])],
        "action": action,
        "reward": torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 2.0]),
        "next_obs": eye[torch.tensor([0, 1, 1, 2, 2, 2])],
        "terminated": action == 0,
        "truncated": torch.tensor([False] * 5 + [True]),
        "n_steps": torch.ones(6, dtype=torch.uint8),
    }
    for _ in range(1000):
        agent.opt(batch)
    grid = ((torch.arange(32) + 0.5) / 32).expand(3, 32)
    found = agent.online({"obs": eye}, grid).mean(1).detach().numpy()
    np.testing.assert_allclose(found, q, atol=0.3)
    obs = {"obs": np.eye(3, dtype=np.float32)}
    assert policy_for(agent, spaces, 3).act(obs, explore=False).tolist() == [1, 1, 1]


def test_a_weight_multiplies_its_samples_gradient_once(
    vector_discrete: Spaces, make_batch: MakeBatch
) -> None:
    batch = make_batch(vector_discrete, 1)

    def grad_norm(weight: float) -> float:
        result = build(vector_discrete).opt(batch, torch.tensor([weight]), record=True)
        assert result.td_errors is not None
        assert result.td_errors.shape == (1,)
        return result.record["grad_norm"]

    assert grad_norm(0.5) == pytest.approx(0.5 * grad_norm(1.0), rel=1e-5)


def test_the_policy_in_numpy_sees_what_torch_sees(vector_discrete: Spaces) -> None:
    agent = build(vector_discrete)
    policy = policy_for(agent, vector_discrete, 5)
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    taus = np.random.default_rng(1).random(7, np.float32)
    z = agent.online({"obs": torch.from_numpy(obs)}, torch.from_numpy(taus).expand(5, 7))
    found = policy.network({"obs": obs}, taus[np.newaxis])  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, z.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_acting_is_risk_neutral_and_greedy_acting_deterministic(vector_discrete: Spaces) -> None:
    agent = build(vector_discrete, n_action_quantiles=32)
    policy = policy_for(agent, vector_discrete, 20)
    obs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    grid = ((torch.arange(32) + 0.5) / 32).expand(20, 32)
    best = agent.online({"obs": torch.from_numpy(obs)}, grid).mean(1).argmax(1)
    for _ in range(3):
        assert policy.act({"obs": obs}, explore=False).tolist() == best.tolist()


def test_images_are_learned_from_and_acted_on(make_batch: MakeBatch) -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, (4, 40, 40), np.uint8), gym.spaces.Discrete(3, start=2))
    exploration = ExplorationConfig(kind="constant", epsilon_final=1.0)
    agent = build(spaces, cnn_hidden_sizes=(16,), exploration=exploration)
    agent.opt(make_batch(spaces, 3), record=True)
    policy = policy_for(agent, spaces, 40)
    obs = {"obs": np.zeros((40, 4, 40, 40), np.uint8)}
    assert set(policy.act(obs, explore=True).tolist()) == {2, 3, 4}
    assert len(set(policy.act(obs, explore=False).tolist())) == 1
