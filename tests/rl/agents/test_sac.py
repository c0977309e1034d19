"""SAC learns what its paper says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal

from vedette_rl.agents.registry import agent_kind
from vedette_rl.agents.sac.agent import SacAgent
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.sac.loss import policy_loss, soft_target, temperature_loss
from vedette_rl.core import ModelInfo, Policy
from vedette_rl.envs.spaces import Spaces
from vedette_rl.storage.checkpoints import find_not_finite

PAPER = {
    "normalize_observations": False,
    "critic_architecture": "mlp",
    "policy_delay": 1,
}
"""Soft actor-critic without what came later."""

MakeBatch = Callable[..., dict[str, torch.Tensor]]


def build(spaces: Spaces, seed: int = 0, **options: Any) -> SacAgent:
    config = SacConfig(**{"hidden_sizes": (16, 8), **PAPER, **options})
    return SacAgent(config, spaces, device="cpu", seed=seed)


def policy_for(agent: SacAgent, spaces: Spaces, seed: int = 0) -> Policy:
    policy = agent_kind("sac").build_policy(agent._config, spaces, ranks=np.zeros(1), seed=seed)
    policy.sync_model(agent.model_info())
    return policy


def test_losses_by_hand() -> None:
    alpha = torch.tensor(0.5)
    q_BM = torch.tensor([[1.0, 3.0], [4.0, 6.0]])
    log_pi = torch.tensor([-1.0, 2.0])
    target = soft_target(torch.tensor([10.0, 20.0]), torch.tensor([0.9, 0.0]), q_BM, log_pi, alpha)
    expected = torch.tensor([[10 + 0.9 * 1.5, 10 + 0.9 * 3.5], [20.0, 20.0]])
    torch.testing.assert_close(target, expected)
    loss = policy_loss(torch.tensor([1.0, 4.0]), log_pi, alpha)
    assert loss.item() == pytest.approx((-0.5 - 1 + 1 - 4) / 2)


def test_quantiles_by_hand(vector_box: Spaces) -> None:
    agent = build(vector_box, n_quantiles=3, dropped_quantiles=1)  # of each of two critics
    q_t_KBN = torch.tensor([[[1.0, 9.0, 4.0]], [[3.0, 2.0, 8.0]]])
    assert agent.target_values(q_t_KBN).tolist() == [[1.0, 2.0, 3.0, 4.0]]
    agent = build(vector_box, n_quantiles=2)
    # TD errors 1 and 0 at tau 1/4 and 3/4; 2 at both: (1/4 x 1/2 + 0) / 2 + (1/4 + 3/4) x 3/2 / 2
    loss = agent._critic_loss(
        torch.tensor([[[0.0, 1.0]], [[-1.0, -1.0]]]), torch.tensor([[1.0]]), None
    )
    assert loss.item() == pytest.approx(0.0625 + 0.75)


def test_the_smallest_of_two_drawn_critics_by_hand(vector_box: Spaces) -> None:
    agent = build(vector_box, n_critics=3, critics_in_target=2)
    q_t_KBN = torch.tensor([[[1.0]], [[2.0]], [[3.0]]])
    found = [agent.target_values(q_t_KBN).item() for _ in range(300)]
    assert set(found) == {1.0, 2.0}
    assert 160 < found.count(1.0) < 240  # in two pairs of three; five standard deviations


@pytest.mark.parametrize(("entropy", "grows"), [(-3.0, True), (-1.0, False)])
def test_alpha_grows_while_entropy_is_below_its_target(entropy: float, grows: bool) -> None:
    log_alpha = torch.zeros((), requires_grad=True)
    log_pi = torch.full((4,), -entropy)
    torch.autograd.backward(temperature_loss(log_alpha, log_pi, target_entropy=-2.0))
    assert log_alpha.grad is not None
    assert (log_alpha.grad.item() < 0) == grows


class Plain:
    """SAC once more: separate critics, torch's modules, distribution and optimizers."""

    def __init__(self, state: dict[str, Any], config: SacConfig) -> None:
        self.config = config
        self.opt_steps = 0
        norm = config.policy_architecture == "layer_norm"
        policy = state["policy"]
        if config.policy_batch_norm:  # a perceptron of its own in the first place of several
            policy = {f"policy.{k}.weight": policy[f"policy.weights.{k}"][0].t() for k in range(3)}
            biases = {f"policy.{k}.bias": state["policy"][f"policy.biases.{k}"] for k in range(3)}
            policy |= {name: bias.flatten() for name, bias in biases.items()}
        self.pi = self._mlp([policy[f"policy.{k}.weight"] for k in range(3)], norm)
        for k, layer in enumerate(self._linear(self.pi)):
            layer.bias.data.copy_(policy[f"policy.{k}.bias"])
        if config.policy_batch_norm:
            self.pi = self._normalized(self.pi)
        self.joint = config.critic_architecture == "batch_norm"
        self.critics = [self._critic(state["critics"], k) for k in range(config.n_critics)]
        targets = range(0 if self.joint else config.n_critics)
        self.targets = [self._critic(state["target"], k) for k in targets]
        self.seen = np.zeros((0, 4))
        self.log_alpha = state["temperature"]["log_alpha"].clone().requires_grad_()
        self.noise = torch.Generator().set_state(state["noise"])
        both = [p for critic in self.critics for p in critic.parameters()]
        settings: dict[str, Any] = {"eps": config.adam_eps, "weight_decay": config.weight_decay}
        settings["betas"] = (config.adam_beta1, 0.999)
        self.critics_adam = torch.optim.AdamW(both, lr=0.01, **settings)
        self.pi_adam = torch.optim.AdamW(self.pi.parameters(), lr=0.01, **settings)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=0.02, eps=config.adam_eps)

    @staticmethod
    def _mlp(weights: list[torch.Tensor], norm: bool) -> nn.Sequential:
        layers: list[nn.Module] = []
        for weight in weights:
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight.data.copy_(weight)
            between = nn.LayerNorm(weight.shape[0], elementwise_affine=False)
            layers += [linear, between, nn.ReLU()] if norm else [linear, nn.ReLU()]
        return nn.Sequential(*layers[: -2 if norm else -1])

    @staticmethod
    def _linear(network: nn.Sequential) -> list[nn.Linear]:
        return [layer for layer in network if isinstance(layer, nn.Linear)]

    def _critic(self, state: dict[str, torch.Tensor], member: int) -> nn.Sequential:
        norm = self.config.critic_architecture == "layer_norm"
        network = self._mlp([state[f"q.weights.{k}"][member].t() for k in range(3)], norm)
        for k, layer in enumerate(self._linear(network)):
            layer.bias.data.copy_(state[f"q.biases.{k}"][member, 0])
        return self._normalized(network) if self.joint else network

    @staticmethod
    def _normalized(network: nn.Sequential) -> nn.Sequential:
        """The same with batch normalization in front of each linear layer."""
        layers: list[nn.Module] = []
        for layer in network:
            if isinstance(layer, nn.Linear):
                size = layer.in_features
                layers.append(nn.BatchNorm1d(size, eps=1e-3, momentum=0.01))
            layers.append(layer)
        return nn.Sequential(*layers).eval()

    def normalized(self, obs: torch.Tensor) -> torch.Tensor:
        if not self.config.normalize_observations:
            return obs
        scaled = (obs.numpy() - self.seen.mean(axis=0)) / np.sqrt(self.seen.var(axis=0) + 1e-6)
        return torch.from_numpy(scaled.astype(np.float32)).clip(-10, 10)

    def target_values(self, values: list[torch.Tensor]) -> torch.Tensor:
        """``(B, M)``: what the target takes of the critics' values of the successors."""
        if self.config.critics_in_target:
            order = torch.rand(len(values), generator=self.noise).argsort().tolist()
            values = [values[k] for k in order[: self.config.critics_in_target]]
        if self.config.n_quantiles == 1:
            return torch.stack(values).amin(dim=0)
        rows = []
        for row in range(len(values[0])):
            atoms = sorted(atom.item() for value in values for atom in value[row])
            rows.append(atoms[: len(atoms) - self.config.dropped_quantiles * len(values)])
        return torch.tensor(rows)

    def act(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.pi(obs).chunk(2, dim=1)
        std = log_std.clamp(self.config.log_std_min, self.config.log_std_max).exp()
        u = mean + std * torch.randn(mean.shape, generator=self.noise)
        log_pi = Normal(mean, std).log_prob(u) - torch.log(1 - u.tanh() ** 2)
        return u.tanh(), log_pi.sum(dim=1)

    def descend(self, adam: torch.optim.Adam, loss: torch.Tensor) -> None:
        adam.zero_grad()
        torch.autograd.backward(loss)
        if self.config.max_grad_norm:
            parameters = adam.param_groups[0]["params"]
            nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm)
        adam.step()

    def critic_loss(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Of each sample, of one critic's ``(B, N)`` and the targets ``(B, M)``."""
        n = z.shape[1]
        if n == 1:
            delta = (z - y).squeeze(1)
            if self.config.loss == "mse":
                return delta**2
            return torch.where(delta.abs() <= 1, delta**2 / 2, delta.abs() - 0.5)
        total = torch.zeros(len(z))
        for k in range(n):  # equation 6 of TQC, over the mean of the targets
            delta = y - z[:, k : k + 1]
            huber = torch.where(delta.abs() <= 1, delta**2 / 2, delta.abs() - 0.5)
            tau = (2 * k + 1) / (2 * n)
            total = total + ((tau - (delta.detach() < 0).float()).abs() * huber).mean(dim=1)
        return total / n

    def opt(
        self, batch: dict[str, torch.Tensor], weights: torch.Tensor
    ) -> tuple[torch.Tensor, float]:
        """TD errors and the critics' loss."""
        config = self.config
        alpha = self.log_alpha.detach().exp()
        self.seen = np.concatenate([self.seen, batch["obs"].numpy().astype(np.float64)])
        obs, next_obs = self.normalized(batch["obs"]), self.normalized(batch["next_obs"])
        unit = torch.stack(
            [batch["action"][:, 0] / 2, batch["action"][:, 1] / 5 - 1], dim=1
        )  # bounds [-2, 2] and [0, 10]
        x = torch.cat([obs, unit], 1)
        with torch.no_grad():
            a_next, log_pi_next = self.act(next_obs)
        values, next_values = self.values(x, torch.cat([next_obs, a_next], 1))
        with torch.no_grad():
            q_next = self.target_values(next_values)
            goes_on = 1 - batch["terminated"].float()
            gamma = 0.9 ** batch["n_steps"].float()
            soft = q_next - (alpha * log_pi_next)[:, None]
            y = 3.0 * batch["reward"][:, None] + (goes_on * gamma)[:, None] * soft
        loss = sum((weights * self.critic_loss(value, y)).mean() for value in values)
        assert isinstance(loss, torch.Tensor)
        self.descend(self.critics_adam, loss)
        self.opt_steps += 1
        if self.opt_steps % config.policy_delay == 0:
            self.improve_policy(obs, alpha)
        if self.targets and self.opt_steps % config.target_update_interval == 0:
            self.soft_update()
        deltas = [(value.mean(dim=1) - y.mean(dim=1)).abs().detach() for value in values]
        return torch.stack(deltas).mean(dim=0), loss.item()

    def values(
        self, x: torch.Tensor, next_x: torch.Tensor
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Of each critic, and of each target without a gradient."""
        if not self.joint:
            with torch.no_grad():
                next_values = [target(next_x) for target in self.targets]
            return [critic(x) for critic in self.critics], next_values
        both = [critic.train()(torch.cat([x, next_x])) for critic in self.critics]
        for critic in self.critics:
            critic.eval()
        return [q[: len(x)] for q in both], [q[len(x) :].detach() for q in both]

    def improve_policy(self, obs: torch.Tensor, alpha: torch.Tensor) -> None:
        self.pi.train()
        a, log_pi = self.act(obs)
        self.pi.eval()
        q = torch.stack([critic(torch.cat([obs, a], 1)).mean(dim=1) for critic in self.critics])
        plain = self.config.n_quantiles == 1 and not self.config.critics_in_target
        q = q.amin(dim=0) if plain else q.mean(dim=0)
        self.descend(self.pi_adam, (alpha * log_pi - q).mean())
        entropy = -2.0 if self.config.target_entropy == "auto" else self.config.target_entropy
        self.descend(self.alpha_adam, -(self.log_alpha * (log_pi.detach() + entropy)).mean())

    def soft_update(self) -> None:
        for critic, target in zip(self.critics, self.targets, strict=True):
            for p, p_target in zip(critic.parameters(), target.parameters(), strict=True):
                p_target.data.mul_(0.9).add_(0.1 * p.data)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"adam_eps": 1.0},  # steps in proportion to the gradient: its size shows
        {"adam_eps": 1.0, "max_grad_norm": 0.5},
        {"adam_eps": 1.0, "adam_beta1": 0.5},  # not of alpha
        {"adam_eps": 1.0, "target_entropy": 1.5},
        {"target_update_interval": 3},
        {"loss": "huber"},
        {"log_std_min": -0.1, "log_std_max": 0.05},
        {"adam_eps": 1.0, "normalize_observations": True},
        {"adam_eps": 1.0, "critic_architecture": "layer_norm", "policy_architecture": "layer_norm"},
        {"adam_eps": 1.0, "critic_architecture": "batch_norm", "policy_delay": 2},
        {"adam_eps": 1.0, "critic_architecture": "batch_norm", "n_quantiles": 3},
        {"critic_architecture": "batch_norm", "n_critics": 3, "critics_in_target": 2},
        {"adam_eps": 1.0, "policy_batch_norm": True, "policy_delay": 2},
        {"policy_batch_norm": True, "critic_architecture": "batch_norm", "weight_decay": 0.5},
        {"adam_eps": 1.0, "policy_delay": 3, "weight_decay": 0.5},
        {"adam_eps": 1.0, "n_critics": 4, "critics_in_target": 2},
        {"adam_eps": 1.0, "n_critics": 3, "n_quantiles": 5, "dropped_quantiles": 1},
    ],
)
def test_steps_equal_those_of_a_plain_formulation(
    vector_box: Spaces, make_batch: MakeBatch, options: dict[str, Any]
) -> None:
    agent = build(
        vector_box,
        learning_rate=0.01,
        alpha_learning_rate=0.02,
        discount=0.9,
        tau=0.1,
        reward_scale=3.0,
        initial_alpha=0.3,
        **options,
    )
    plain = Plain(agent.get_state(), agent._config)
    for step in range(8):
        batch = make_batch(vector_box, 16, seed=step)
        weights = torch.rand(16)
        expected, loss = plain.opt(batch, weights)
        result = agent.opt(batch, weights, record=True)
        torch.testing.assert_close(result.td_errors, expected, rtol=1e-3, atol=1e-4)
        assert result.record["loss"] == pytest.approx(loss, rel=1e-3)
    state = agent.get_state()
    torch.testing.assert_close(
        state["temperature"]["log_alpha"], plain.log_alpha.detach(), rtol=1e-4, atol=1e-5
    )
    policy = state["policy"]
    last = policy["policy.weights.2"][0].t() if "policy.weights.2" in policy else None
    torch.testing.assert_close(
        policy["policy.2.weight"] if last is None else last,
        plain.pi[-1].weight.detach(),
        rtol=1e-2,
        atol=1e-4,
    )
    for k, each in enumerate(one for one in plain.pi if isinstance(one, nn.BatchNorm1d)):
        ours = policy[f"policy.statistics.{k}"][:, 0]
        assert each.running_mean is not None
        assert each.running_var is not None
        running = torch.stack([each.running_mean, each.running_var])
        torch.testing.assert_close(ours, running, rtol=1e-3, atol=1e-5)
    ours, theirs = ("critics", plain.critics) if plain.joint else ("target", plain.targets)
    torch.testing.assert_close(
        state[ours]["q.weights.1"][1].t(),
        plain._linear(theirs[1])[1].weight.detach(),
        rtol=1e-2,
        atol=1e-4,
    )
    if plain.joint:
        mean, variance = state["critics"]["q.statistics.1"][:, 1]
        found = [each for each in plain.critics[1] if isinstance(each, nn.BatchNorm1d)][1]
        torch.testing.assert_close(mean, found.running_mean, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(variance, found.running_var, rtol=1e-3, atol=1e-5)


def test_a_normalized_policy_is_published_as_a_plain_network(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    """By its running statistics, under a plain policy's names, and actors are told of none."""
    agent = build(vector_box, policy_batch_norm=True, policy_delay=1)
    obs = {"obs": 3.0 * torch.randn(20, 4)}
    for step in range(20):
        agent.opt(make_batch(vector_box, 16, seed=step))
    model = agent.model_info()
    plain = build(vector_box).model_info()
    assert {n: a.shape for n, a in model.arrays.items()} == {
        n: a.shape for n, a in plain.arrays.items()
    }
    assert all(array.dtype == np.float32 for array in model.arrays.values())
    mean = agent.pi(obs).detach()[:, :2].numpy()
    action = policy_for(agent, vector_box).act({"obs": obs["obs"].numpy()}, explore=False)
    np.testing.assert_allclose(action, np.tanh(mean) * [2, 5] + [0, 5], rtol=1e-4, atol=1e-4)
    of_batch = agent.pi(obs, True).detach()[:, :2].numpy()
    assert np.abs(of_batch - mean).max() > 0.01
    other = build(vector_box, policy_batch_norm=True, policy_delay=1, seed=5)
    other.set_state(agent.get_state())
    for name, array in other.model_info().arrays.items():
        np.testing.assert_array_equal(array, agent.model_info().arrays[name])


def test_a_normalized_policy_counts_the_batches_that_it_learns_from(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    agent = build(vector_box, policy_batch_norm=True, policy_delay=3)
    batches = [make_batch(vector_box, 16, seed=step) for step in range(3)]
    for batch in batches[:2]:
        agent.opt(batch)
    statistics = agent.get_state()["policy"]["policy.statistics.0"]
    assert statistics.tolist() == [[[0.0] * 4], [[1.0] * 4]]
    agent.opt(batches[2])
    mean, variance = agent.get_state()["policy"]["policy.statistics.0"][:, 0]
    torch.testing.assert_close(mean, 0.01 * batches[2]["obs"].mean(0))
    torch.testing.assert_close(variance, 0.99 + 0.01 * batches[2]["obs"].var(0))


@pytest.mark.parametrize(
    ("beside", "fix"),
    [
        ({"policy_architecture": "residual"}, "beside residual: set policy_architecture=mlp"),
        ({"imitation": {"loss": "cross_entropy"}}, "cross_entropy: set imitation.loss=none"),
        ({"memory": "gru"}, "memory is gru, .*: set policy_batch_norm=false"),
    ],
)
def test_a_normalized_policy_is_refused_beside_what_is_not_built(
    beside: dict[str, Any], fix: str
) -> None:
    with pytest.raises(ValueError, match=fix):
        SacConfig(policy_batch_norm=True, **beside)


def test_an_action_without_dimensions_is_learned_from(make_batch: MakeBatch) -> None:
    spaces = Spaces(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-2, 2, ()))
    agent = build(spaces)
    result = agent.opt(make_batch(spaces, 8))
    assert result.td_errors is not None
    assert result.td_errors.shape == (8,)
    action = policy_for(agent, spaces).act({"obs": np.zeros((1, 3), np.float32)}, explore=False)
    assert np.shape(action) == (1,)


def test_finds_the_soft_fixed_point_of_a_chain() -> None:
    """Three states in a row, reward 1 for staying in the last, whatever the action: the best
    policy is the widest one, which on [-1, 1] has an entropy of almost log 2."""
    spaces = Spaces(gym.spaces.Box(0, 1, (3,), np.float32), gym.spaces.Box(-1, 1, (1,)))
    gamma = 0.5
    alpha = 1.0
    entropy = math.log(2)
    q2 = (1 + gamma * alpha * entropy) / (1 - gamma)
    q1 = gamma * (q2 + alpha * entropy)
    q0 = gamma * (q1 + alpha * entropy)
    agent = build(
        spaces, alpha=alpha, discount=gamma, learning_rate=3e-3, tau=0.05, hidden_sizes=(32, 32)
    )
    eye = torch.eye(3)
    rng = np.random.default_rng(0)
    state = torch.arange(3).repeat(32)
    batch = {
        "obs": eye[state],
        "reward": (state == 2).float(),
        "next_obs": eye[(state + 1).clamp(max=2)],
        "terminated": torch.zeros(96, dtype=torch.bool),
        "truncated": torch.ones(96, dtype=torch.bool),
        "n_steps": torch.ones(96, dtype=torch.uint8),
    }
    for _ in range(700):
        action = torch.from_numpy(rng.uniform(-1, 1, (96, 1)).astype(np.float32))
        agent.opt(batch | {"action": action})
    action = torch.linspace(-0.8, 0.8, 9).unsqueeze(1)
    for s, expected in enumerate((q0, q1, q2)):
        q = agent.q({"obs": eye[s].expand(9, 3)}, action)
        np.testing.assert_allclose(q.detach().numpy(), expected, atol=0.12)


def test_finds_the_best_action_within_the_bounds() -> None:
    spaces = Spaces(gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Box(-2, 6, (1, 1)))
    agent = build(spaces, alpha=0.02, learning_rate=3e-3, hidden_sizes=(32, 32))
    rng = np.random.default_rng(0)
    for _ in range(600):
        action = torch.from_numpy(rng.uniform(-2, 6, (64, 1, 1)).astype(np.float32))
        agent.opt(
            {
                "obs": torch.zeros(64, 1),
                "action": action,
                "reward": -((action.flatten() - 5) ** 2) / 16,
                "next_obs": torch.zeros(64, 1),
                "terminated": torch.ones(64, dtype=torch.bool),
                "truncated": torch.zeros(64, dtype=torch.bool),
                "n_steps": torch.ones(64, dtype=torch.uint8),
            }
        )
    policy = policy_for(agent, spaces)
    action = policy.act({"obs": np.zeros((3, 1), np.float32)}, explore=False)
    assert action.shape == (3, 1, 1)
    np.testing.assert_allclose(action, 5.0, atol=0.5)


def test_a_state_of_another_device_is_resumed_with_other_random_numbers(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    agent = build(vector_box)
    on_gpu = torch.arange(16, dtype=torch.uint8)  # a generator's state there: seed and offset
    state = {**agent.get_state(), "noise": on_gpu, "shift": on_gpu}
    first, second = build(vector_box, seed=1), build(vector_box, seed=2)
    for resumed in (first, second):
        resumed.set_state(state)
        resumed.opt(make_batch(vector_box, 8))
    assert torch.equal(first.policy.data, second.policy.data)
    agent.opt(make_batch(vector_box, 8))
    assert not torch.equal(first.policy.data, agent.policy.data)


def test_weight_decay_is_of_networks_and_not_of_the_temperature(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    options = {"initial_alpha": 0.1, "alpha_learning_rate": 0.01, "target_entropy": -2.0}
    found = []
    for decay in (0.0, 0.5):  # of the policy it changes nothing before alpha's first step
        agent = build(vector_box, weight_decay=decay, learning_rate=1e-12, **options)
        agent.opt(make_batch(vector_box, 8))
        found.append(agent.get_state()["temperature"]["log_alpha"])
    assert torch.equal(*found)
    assert found[0] != math.log(0.1)


def test_online_and_target_critics_are_saved_apart(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    agent = build(vector_box)
    agent.opt(make_batch(vector_box, 8))
    state = agent.get_state()
    assert not torch.equal(state["critics"]["q.weights.0"], state["target"]["q.weights.0"])
    fresh = build(vector_box, seed=1)
    fresh.set_state(state)
    again = fresh.get_state()
    for part in ("critics", "target"):
        assert torch.equal(state[part]["q.weights.0"], again[part]["q.weights.0"])


def test_a_fixed_alpha_stays(vector_box: Spaces, make_batch: MakeBatch) -> None:
    agent = build(vector_box, alpha=0.2)
    for _ in range(3):
        record = agent.opt(make_batch(vector_box, 8), record=True).record
    assert record["alpha"] == pytest.approx(0.2)
    assert all(np.isfinite(value) for value in record.values())


@pytest.mark.parametrize(("before", "now"), [(0.2, 0.5), ("auto", 0.5), (0.0, "auto")])
def test_a_resumed_agent_has_the_alpha_that_is_configured_now(
    vector_box: Spaces, make_batch: MakeBatch, before: Any, now: Any
) -> None:
    """A fixed one, or where a tuned one begins: a fixed one before is no result of learning."""
    resumed = build(vector_box, alpha=now, initial_alpha=0.3)
    resumed.set_state(build(vector_box, alpha=before).get_state())
    record = resumed.opt(make_batch(vector_box, 8), record=True).record
    assert record["alpha"] == pytest.approx(0.3 if now == "auto" else now)


def test_schedules_go_on_at_their_step_where_the_policy_learns_more_rarely_from_now_on(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    schedule = {"kind": "linear", "total_opts": 10}
    agent = build(vector_box, policy_delay=1, alpha=0.2, schedule=schedule)
    for step in range(6):
        agent.opt(make_batch(vector_box, 8, seed=step))
    resumed = build(vector_box, policy_delay=2, schedule=schedule)
    resumed.set_state(agent.get_state())
    for step in range(2):
        resumed.opt(make_batch(vector_box, 8, seed=step))
    adams = (resumed._critics_adam, resumed._policy_adam, resumed._alpha_adam)
    at_step_8 = 0.2 * resumed._config.learning_rate
    assert [adam._rate.item() for adam in adams] == pytest.approx([at_step_8] * 3)


def test_the_model_is_the_policy_alone(vector_box: Spaces) -> None:
    assert set(build(vector_box).model_info().arrays) == {
        f"policy.{k}.{part}" for k in range(3) for part in ("weight", "bias")
    }


def test_the_policy_in_numpy_does_what_torch_does(vector_box: Spaces) -> None:
    agent = build(vector_box)
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    mean = agent.pi({"obs": torch.from_numpy(obs)}).detach().numpy()[:, :2]
    expected = np.tanh(mean) * [2, 5] + [0, 5]
    action = policy_for(agent, vector_box).act({"obs": obs}, explore=False)
    assert action.dtype == np.float32
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)


def test_exploring_actions_have_the_gaussians_spread(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    agent = build(vector_box)
    agent.opt(make_batch(vector_box, 8))
    policy = policy_for(agent, vector_box)
    obs = np.tile(np.array([[0.1, -0.2, 0.3, 0.0]], np.float32), (4000, 1))
    gaussian = agent.pi({"obs": torch.from_numpy(obs[:1])}).detach().numpy()[0]
    unit = (policy.act({"obs": obs}, explore=True) - [0, 5]) / [2, 5]
    u = np.arctanh(np.clip(unit, -1 + 1e-6, 1 - 1e-6))
    np.testing.assert_allclose(u.mean(0), gaussian[:2], atol=0.1)
    np.testing.assert_allclose(u.std(0), np.exp(gaussian[2:]), atol=0.1)


def test_an_untrained_model_acts_uniformly_and_only_while_exploring(vector_box: Spaces) -> None:
    policy = policy_for(build(vector_box), vector_box)
    obs = {"obs": np.zeros((4000, 4), np.float32)}
    action = policy.act(obs, explore=True)
    np.testing.assert_allclose(action.mean(0), [0, 5], atol=0.2)
    np.testing.assert_allclose(action.std(0), np.array([4, 10]) / math.sqrt(12), atol=0.1)
    assert np.ptp(policy.act(obs, explore=False), axis=0).tolist() == [0, 0]


def test_a_trained_model_on_images_acts_uniformly_no_more() -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, (40, 40), np.uint8), gym.spaces.Box(-1, 1, (2,)))
    agent = build(spaces, cnn_hidden_sizes=(16,), log_std_min=-9.0, log_std_max=-8.0)
    policy = policy_for(agent, spaces)
    obs = {"obs": np.zeros((50, 40, 40), np.uint8)}
    assert policy.act(obs, explore=True).std(0).min() > 0.3
    policy.sync_model(ModelInfo(1, agent.model_info().arrays))
    assert policy.act(obs, explore=True).std(0).max() < 0.01


def test_actions_never_leave_the_bounds(vector_box: Spaces) -> None:
    policy = policy_for(build(vector_box, uniform_warmup=False, initial_alpha=5.0), vector_box)
    obs = {"obs": np.full((1000, 4), 1e4, np.float32)}
    for explore in (True, False):
        action = policy.act(obs, explore=explore)
        assert all(vector_box.action.contains(row) for row in action)


def test_two_actors_of_different_seeds_act_differently(vector_box: Spaces) -> None:
    agent = build(vector_box)
    obs = {"obs": np.zeros((3, 4), np.float32)}
    one = policy_for(agent, vector_box, seed=1).act(obs, explore=True)
    same = policy_for(agent, vector_box, seed=1).act(obs, explore=True)
    other = policy_for(agent, vector_box, seed=2).act(obs, explore=True)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_images_are_learned_from_and_acted_on(make_batch: MakeBatch) -> None:
    spaces = Spaces(
        gym.spaces.Box(0, 255, (40, 40, 3), np.uint8), gym.spaces.Box(-1, 1, (2,), np.float32)
    )
    agent = build(spaces, cnn_hidden_sizes=(16,))
    agent.opt(make_batch(spaces, 3))
    policy = policy_for(agent, spaces)
    obs = {"obs": np.zeros((2, 40, 40, 3), np.uint8)}
    assert policy.act(obs, explore=True).shape == (2, 2)


CAMERA = Spaces(
    gym.spaces.Box(0, 255, (40, 40, 3), np.uint8), gym.spaces.Box(-1, 1, (2,), np.float32)
)


def test_the_critics_loss_alone_trains_the_encoder_of_images(make_batch: MakeBatch) -> None:
    agent = build(CAMERA)
    for k in range(3):
        before = agent.model_info().arrays
        agent.opt(make_batch(CAMERA, 8, seed=k))
        after = agent.model_info().arrays
        critics = dict(agent.q.named_parameters())
        for name, array in after.items():
            assert not np.array_equal(array, before[name]), name
            if name.startswith("encoder."):
                np.testing.assert_array_equal(array, critics[name].detach().numpy())
    own = build(CAMERA, shared_encoder=False)
    own.opt(make_batch(CAMERA, 8))
    name = "encoder.image0.linear.weight"
    assert not torch.equal(own.pi.get_parameter(name), own.q.get_parameter(name))


def test_both_observations_of_a_batch_are_shifted(make_batch: MakeBatch) -> None:
    """A batch of flat pictures looks the same however it is shifted; any other does not."""
    batch = make_batch(CAMERA, 16)
    flat = torch.full_like(batch["obs"], 9)
    for part in ("obs", "next_obs"):
        seen = {"obs": flat, "next_obs": flat, part: batch[part]}
        losses = [
            build(CAMERA, random_shift=pixels).opt({**batch, **seen}, record=True).record["loss"]
            for pixels in (0, 3)
        ]
        assert losses[0] != losses[1], part
    seen = {"obs": flat, "next_obs": flat}
    losses = [
        build(CAMERA, random_shift=pixels).opt({**batch, **seen}, record=True).record["loss"]
        for pixels in (0, 3)
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("given", "learning_rate", "alpha_learning_rate", "policy_delay"),
    [
        ({}, 1e-3, 1e-3, 3),
        ({"critic_architecture": "batch_renorm"}, 1e-3, 1e-3, 3),
        ({"critic_architecture": "mlp"}, 3e-4, 3e-4, 1),
        ({"critic_architecture": "residual", "policy_delay": 2}, 3e-4, 3e-4, 2),
        ({"critic_architecture": "layer_norm", "learning_rate": 1e-3}, 1e-3, 3e-4, 1),
        ({"critic_architecture": "batch_norm", "alpha_learning_rate": 0.1}, 1e-3, 0.1, 3),
    ],
)
def test_step_sizes_follow_the_critics_where_they_are_not_set(
    given: dict[str, Any], learning_rate: float, alpha_learning_rate: float, policy_delay: int
) -> None:
    config = SacConfig(**given)
    assert config.learning_rate == learning_rate
    assert config.alpha_learning_rate == alpha_learning_rate
    assert config.policy_delay == policy_delay
    assert SacConfig(**config.model_dump()) == config


def test_critics_with_renormalization_begin_as_those_without(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    """And have no targets either."""

    def state(critics: str) -> dict[str, Any]:
        agent = build(vector_box, critic_architecture=critics)
        for step in range(3):
            agent.opt(make_batch(vector_box, 16, seed=step))
        return agent.get_state()

    plain, found = state("batch_norm"), state("batch_renorm")
    assert found["critics"].pop("q.counted") == 3
    for moment in ("exp_avg", "exp_avg_sq"):
        assert found["critics_adam"][moment].pop("q.counted") == 0
    torch.testing.assert_close(found, plain, rtol=0.0, atol=0.0)


def test_without_a_weight_of_entropy_the_state_is_finite(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    """The logarithm of 0 in a checkpoint was taken for diverged learning."""
    agent = build(vector_box, alpha=0.0)
    agent.opt(make_batch(vector_box, 8))
    assert find_not_finite(agent.get_state()) == ""
    assert agent._temperature().item() < 1e-30
