"""TD3 learns what its paper says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from vedette_rl.agents.registry import agent_kind
from vedette_rl.agents.td3.agent import Td3Agent, smoothed_action
from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.core import Policy
from vedette_rl.envs.spaces import Spaces

MakeBatch = Callable[..., dict[str, torch.Tensor]]


def build(spaces: Spaces, seed: int = 0, **options: Any) -> Td3Agent:
    config = Td3Config(**{"hidden_sizes": (16, 8), **options})
    return Td3Agent(config, spaces, device="cpu", seed=seed)


def policy_for(agent: Td3Agent, spaces: Spaces, seed: int = 0) -> Policy:
    policy = agent_kind("td3").build_policy(agent._config, spaces, ranks=np.zeros(1), seed=seed)
    policy.sync_model(agent.model_info())
    return policy


def test_the_targets_noise_is_clipped_and_so_is_its_action() -> None:
    action = torch.tensor([[0.0, 0.9, -0.2]])
    noise = torch.tensor([[10.0, 1.0, -1.0]])
    smoothed = smoothed_action(action, noise, 0.2, 0.5)
    torch.testing.assert_close(smoothed, torch.tensor([[0.5, 1.0, -0.4]]))


def test_the_target_by_hand(vector_box: Spaces, make_batch: MakeBatch) -> None:
    agent = build(vector_box, discount=0.9)
    smallest = agent.target_values(torch.tensor([[[10.0], [30.0]], [[20.0], [20.0]]]))
    assert smallest.tolist() == [[10.0], [20.0]]
    batch = make_batch(vector_box, 2, seed=0) | {
        "reward": torch.tensor([1.0, 2.0]),
        "n_steps": torch.tensor([2, 1]),
        "terminated": torch.tensor([False, True]),
    }
    target = agent._successors(batch).target(smallest)
    torch.testing.assert_close(target, torch.tensor([[1.0 + 0.81 * 10.0], [2.0]]))


class Plain:
    """TD3 once more, in the order of algorithm 1: networks and optimizers of torch's own."""

    def __init__(self, agent: Td3Agent, spaces: Spaces) -> None:
        state = agent.get_state()
        self.config = agent._config
        self.opt_steps = 0
        self.noise = torch.Generator().set_state(state["noise"])
        self.pi, self.pi_target = (
            self._mlp(
                [state[part][f"policy.{k}.weight"] for k in range(3)],
                [state[part][f"policy.{k}.bias"] for k in range(3)],
                nn.Tanh(),
            )
            for part in ("policy", "target_policy")
        )
        self.critics, self.targets = (
            [
                self._mlp(
                    [state[part][f"q.weights.{k}"][member].t() for k in range(3)],
                    [state[part][f"q.biases.{k}"][member, 0] for k in range(3)],
                )
                for member in range(2)
            ]
            for part in ("critics", "target")
        )
        both = [p for critic in self.critics for p in critic.parameters()]
        self.critics_adam = torch.optim.Adam(both, lr=0.01, eps=1.0)
        self.pi_adam = torch.optim.Adam(self.pi.parameters(), lr=0.01, eps=1.0)

    @staticmethod
    def _mlp(
        weights: list[torch.Tensor], biases: list[torch.Tensor], *last: nn.Module
    ) -> nn.Sequential:
        layers: list[nn.Module] = []
        for weight, bias in zip(weights, biases, strict=True):
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight.data.copy_(weight)
            linear.bias.data.copy_(bias)
            layers += [linear, nn.ReLU()]
        return nn.Sequential(*layers[:-1], *last)

    def opt(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """TD errors."""
        with torch.no_grad():
            a_next = self.pi_target(batch["next_obs"])
            noise = torch.randn(a_next.shape, generator=self.noise)
            a_next = (a_next + (0.2 * noise).clip(-0.5, 0.5)).clip(-1, 1)
            x_next = torch.cat([batch["next_obs"], a_next], 1)
            q_next = torch.minimum(self.targets[0](x_next), self.targets[1](x_next)).squeeze(1)
            goes_on = 1 - batch["terminated"].float()
            y = batch["reward"] + goes_on * 0.9 ** batch["n_steps"].float() * q_next
        unit = torch.stack([batch["action"][:, 0] / 2, batch["action"][:, 1] / 5 - 1], dim=1)
        x = torch.cat([batch["obs"], unit], 1)
        deltas = [critic(x).squeeze(1) - y for critic in self.critics]
        self.critics_adam.zero_grad()
        torch.autograd.backward(sum((delta**2).mean() for delta in deltas))
        self.critics_adam.step()
        self.opt_steps += 1
        if self.opt_steps % 2 == 0:
            self.pi_adam.zero_grad()
            x = torch.cat([batch["obs"], self.pi(batch["obs"])], 1)
            torch.autograd.backward(-self.critics[0](x).mean())
            self.pi_adam.step()
            self.follow()
        return torch.stack([delta.abs() for delta in deltas]).mean(dim=0).detach()

    def follow(self) -> None:
        pairs = [(self.pi, self.pi_target), *zip(self.critics, self.targets, strict=True)]
        for network, target in pairs:
            for p, p_target in zip(network.parameters(), target.parameters(), strict=True):
                p_target.data.mul_(0.9).add_(0.1 * p.data)


def test_steps_equal_those_of_a_plain_formulation(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    # eps 1: steps in proportion to the gradient, whose size shows
    agent = build(vector_box, learning_rate=0.01, discount=0.9, tau=0.1, adam_eps=1.0)
    plain = Plain(agent, vector_box)
    for step in range(8):
        batch = make_batch(vector_box, 16, seed=step)
        expected = plain.opt(batch)
        torch.testing.assert_close(agent.opt(batch).td_errors, expected, rtol=1e-3, atol=1e-4)
    state = agent.get_state()
    for part, network in (("policy", plain.pi), ("target_policy", plain.pi_target)):
        torch.testing.assert_close(
            state[part]["policy.2.weight"], network[4].weight.detach(), rtol=1e-3, atol=1e-5
        )
    for part, critics in (("critics", plain.critics), ("target", plain.targets)):
        torch.testing.assert_close(
            state[part]["q.weights.1"][1].t(), critics[1][2].weight.detach(), rtol=1e-3, atol=1e-5
        )


def test_the_policy_learns_in_every_second_step_alone(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    agent = build(vector_box)
    before = [agent.model_info().arrays["policy.0.weight"]]
    for step in range(4):
        agent.opt(make_batch(vector_box, 8, seed=step))
        before.append(agent.model_info().arrays["policy.0.weight"])
    moved = [not np.array_equal(a, b) for a, b in pairwise(before)]
    assert moved == [False, True, False, True]


@pytest.mark.parametrize(
    ("options", "first_alone"),
    [({}, True), ({"critics_in_target": 2}, False), ({"n_quantiles": 5}, False)],
)
def test_the_policy_follows_the_first_critic_and_with_redqs_and_tqcs_targets_the_mean_of_all(
    vector_box: Spaces, make_batch: MakeBatch, options: dict[str, int], first_alone: bool
) -> None:
    agent = build(vector_box, n_critics=3, **options)
    followed: list[torch.Tensor] = []
    q = agent.q.forward

    def with_gradients(obs: Any, action: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = q(obs, action)
        if action.requires_grad:  # the policy's
            values.register_hook(lambda grad: followed.append(grad[:, 0, 0]))
        return values

    agent.q.forward = with_gradients  # type: ignore[method-assign]
    for step in range(2):
        agent.opt(make_batch(vector_box, 8, seed=step))
    (per_critic,) = followed
    assert (per_critic != 0).tolist() == [True, not first_alone, not first_alone]


def test_finds_the_best_action_within_the_bounds() -> None:
    spaces = Spaces(gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Box(-2, 6, (1, 1)))
    agent = build(spaces, learning_rate=3e-3, hidden_sizes=(32, 32))
    rng = np.random.default_rng(0)
    for _ in range(600):
        action = torch.from_numpy(rng.uniform(-2, 6, (64, 1, 1)).astype(np.float32))
        agent.opt(
            {
                "obs": torch.zeros(64, 1),
                "action": action,
                "reward": -((action.flatten() - 3) ** 2) / 16,
                "next_obs": torch.zeros(64, 1),
                "terminated": torch.ones(64, dtype=torch.bool),
                "truncated": torch.zeros(64, dtype=torch.bool),
                "n_steps": torch.ones(64, dtype=torch.uint8),
            }
        )
    action = policy_for(agent, spaces).act({"obs": np.zeros((3, 1), np.float32)}, explore=False)
    assert action.shape == (3, 1, 1)
    np.testing.assert_allclose(action, 3.0, atol=0.5)


def test_exploring_adds_noise_of_its_size_and_untrained_models_act_uniformly(
    vector_box: Spaces, make_batch: MakeBatch
) -> None:
    agent = build(vector_box, exploration_noise=0.1)
    obs = {"obs": np.zeros((4000, 4), np.float32)}
    uniform = policy_for(agent, vector_box).act(obs, explore=True)
    assert uniform.std(axis=0) == pytest.approx(np.array([4, 10]) / 12**0.5, rel=0.05)
    agent.opt(make_batch(vector_box, 8))
    policy = policy_for(agent, vector_box)
    noise = policy.act(obs, explore=True) - policy.act(obs, explore=False)
    assert noise.std(axis=0) == pytest.approx([0.2, 0.5], rel=0.05)


def test_the_target_policy_equals_the_policy_at_first_encoder_and_all() -> None:
    camera = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
    agent = build(Spaces(camera, gym.spaces.Box(-1, 1, (2,), np.float32)))
    critics, target = dict(agent.q.named_parameters()), dict(agent._pi_target.named_parameters())
    for name, parameter in agent.pi.named_parameters():
        assert torch.equal(target[name], parameter), name
        assert not name.startswith("encoder.") or torch.equal(critics[name], parameter), name
