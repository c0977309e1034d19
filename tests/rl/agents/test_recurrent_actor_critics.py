"""SAC and TD3 with memory: their steps on windows beside ones computed row by row."""

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
from torch.distributions import Normal

from vedette_rl.agents.recurrent_policy import RecurrentPolicy
from vedette_rl.agents.registry import agent_kind
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.sac.recurrent import RecurrentSacAgent
from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.agents.td3.recurrent import RecurrentTd3Agent
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import WrongSettingsError

D = 2
SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-1, 1, (D,), np.float32))
KINDS: dict[str, Any] = {"sac": SacConfig, "td3": Td3Config}
WEIGHTS = torch.tensor([1.0, 0.5, 0.25])
SEED = 1


def drawn_actions(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float32]:
    return rng.uniform(-1, 1, (*shape, D)).astype(np.float32)


def config_of(agent: str, **settings: Any) -> Any:
    usual = {"hidden_sizes": (8,), "discount": GAMMA, "normalize_observations": False}
    return KINDS[agent](memory="gru", memory_size=SIZE, **{**usual, **settings})


def agent_of(config: Any, *, told: bool = True) -> Any:
    """An agent whose targets have other weights than the networks that learn."""
    kind = agent_kind(config.name)
    agent: Any = kind.build_agent(config, SPACES, device="cpu", seed=SEED)
    assert isinstance(agent, RecurrentSacAgent | RecurrentTd3Agent)
    other = kind.build_agent(config, SPACES, device="cpu", seed=2).get_state()
    targets = {name: other[name] for name in ("target", "target_policy") if name in other}
    agent.set_state({**agent.get_state(), **targets})
    if told:
        agent.expect_burn_in(BURN_IN)
    return agent


def noise(steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The random numbers that an agent draws first, of all positions ``(3, S, D)`` and of all rows
    ``(3, T, D)`` of windows of so many steps."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = [torch.randn(3 * n, D, generator=generator) for n in (steps + 1, steps)]
    of_positions, of_rows = (each.view(3, -1, D) for each in drawn)
    return of_positions, of_rows


def squashed(output: Any, drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An action of a squashed Gaussian, and its log density by the change of variables."""
    mean, log_std = output.chunk(2)
    std = log_std.clamp(-20, 2).exp()
    u = mean + std * drawn
    a = u.tanh()
    return a, Normal(mean, std).log_prob(u).sum() - (1 - a.square()).log().sum()


def memories_of(agent: Any, batch: Batch, *, shared: bool) -> tuple[Any, Any, Any, Any]:
    """What the critics, their targets, the policy and its target remember, row by row."""
    stored = batch["memory"] if shared else torch.zeros_like(batch["memory"])
    critics = memories(agent.q, batch, stored)
    targets = memories(agent._q_target, batch, stored)
    if shared:
        return critics, targets, [[y.detach() for y in row] for row in critics], targets
    of_policy = memories(agent.pi, batch)
    target_policy = getattr(agent, "_pi_target", None)
    return critics, targets, of_policy, memories(target_policy, batch) if target_policy else None


def values(critics: Any, y: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Of one action: ``(K,)``."""
    q_KBN: torch.Tensor = critics.values(y, action.view(1, D))
    return q_KBN[:, 0, 0]


def errors_row_by_row(
    agent: Any,
    batch: Batch,
    n_step: int,
    remembered: tuple[Any, Any, Any, Any],
    drawn: torch.Tensor,
) -> list[list[torch.Tensor]]:
    """Each row's ``q - target`` of each critic ``(K,)``."""
    critics, targets, of_policy, of_target_policy = remembered
    errors = []
    for row in range(3):
        of_row = []
        for t in range(LENGTH[row]):
            target, m, terminated = return_of(batch, row, t, n_step)
            if not terminated:
                of_position = drawn[row, t + m]
                if isinstance(agent, RecurrentSacAgent):
                    output = agent.pi.output(of_policy[row][t + m])[0]
                    a, log_pi = squashed(output, of_position)
                else:
                    output = agent._pi_target.output(of_target_policy[row][t + m])[0]
                    a, log_pi = output + (0.2 * of_position).clamp(-0.5, 0.5), torch.zeros(())
                    a = a.clamp(-1, 1)
                q = values(agent._q_target, targets[row][t + m], a).min()
                target = target + GAMMA**m * (q - log_pi).detach()  # alpha is 1 at first
            taken = batch["action"][row, BURNED[row] + t]
            of_row.append(values(agent.q, critics[row][t], taken) - target)
        errors.append(of_row)
    return errors


EVERY_CASE = pytest.mark.parametrize(
    ("agent", "shared", "n_step", "told"),
    [
        (agent, shared, n_step, told)
        for agent in KINDS
        for shared in (True, False)
        for n_step, told in ((1, True), (3, True), (3, False))
    ],
)


@EVERY_CASE
def test_the_critics_step_is_that_of_networks_run_row_by_row(
    agent: str, shared: bool, n_step: int, told: bool
) -> None:
    config = config_of(agent, shared_encoder=shared, n_step=n_step)
    ours, other = agent_of(config, told=told), agent_of(config)
    batch = batch_of(drawn_actions)
    of_positions, _ = noise(STEPS if told else BURN_IN + STEPS)
    remembered = memories_of(other, batch, shared=shared)
    errors = errors_row_by_row(other, batch, n_step, remembered, of_positions)
    loss = mean_of(WEIGHTS, [[error.square().sum() for error in row] for row in errors])
    loss.backward()
    result = ours.opt(batch, WEIGHTS, record=True)
    assert result.record["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert_errors(result.td_errors, [[error.abs().mean() for error in row] for row in errors])
    assert_gradients(ours.q, other.q)


@EVERY_CASE
def test_the_policys_step_is_that_of_networks_run_row_by_row(
    agent: str, shared: bool, n_step: int, told: bool
) -> None:
    """It climbs the critics that have just learned, of what they remembered before."""
    config = config_of(agent, shared_encoder=shared, n_step=n_step, policy_delay=1)
    ours, other = agent_of(config, told=told), agent_of(config)
    batch = batch_of(drawn_actions)
    _, of_rows = noise(STEPS if told else BURN_IN + STEPS)
    critics, _, of_policy, _ = memories_of(other, batch, shared=shared)
    result = ours.opt(batch, WEIGHTS, record=True)
    losses: list[list[Any]] = []
    log_densities: list[list[Any]] = []
    for row in range(3):
        losses.append(of_row := [])
        log_densities.append(log_pis := [])
        for t in range(LENGTH[row]):
            output = other.pi.output(of_policy[row][t])[0]
            if agent == "sac":
                a, log_pi = squashed(output, of_rows[row, t])
                of_row.append(log_pi - values(ours.q, critics[row][t].detach(), a).min())
                log_pis.append(log_pi.detach())
            else:
                of_row.append(-values(ours.q, critics[row][t].detach(), output)[0])
    ones = torch.ones(3)
    loss = mean_of(ones, losses)
    torch.autograd.backward(loss, inputs=[p for p in other.pi.parameters() if p.requires_grad])
    assert_gradients(ours.pi, other.pi)
    if agent == "sac":
        mean = float(mean_of(ones, log_densities))
        assert result.record["policy_loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
        assert result.record["entropy"] == pytest.approx(-mean, rel=1e-4)
        of_alpha = ours._temperature.log_alpha.grad
        assert float(of_alpha) == pytest.approx(-(mean - D), rel=1e-4)


@pytest.mark.parametrize("agent", [*KINDS])
def test_a_policy_has_the_critics_core_or_its_own(agent: str) -> None:
    for shared in (True, False):
        of = agent_of(config_of(agent, shared_encoder=shared, policy_delay=1))
        before = {name: p.detach().clone() for name, p in of.pi.named_parameters()}
        of.opt(batch_of(drawn_actions))
        for name, p in of.pi.named_parameters():
            assert not torch.equal(p, before[name]), f"{name} learns"
            if name.startswith("core."):
                assert torch.equal(p, of.q.get_parameter(name)) == shared


@pytest.mark.parametrize("agent", [*KINDS])
def test_a_shared_core_is_in_both_of_td3s_targets_alike(agent: str) -> None:
    of = agent_of(config_of(agent, target_update_interval=1, tau=0.3))
    for _ in range(3):
        of.opt(batch_of(drawn_actions))
    if agent == "td3":
        for name, p in of._pi_target.core.named_parameters():
            torch.testing.assert_close(p, of._q_target.core.get_parameter(name))


@pytest.mark.parametrize("agent", [*KINDS])
@pytest.mark.parametrize("shared", [True, False])
def test_acting_gives_the_choices_of_the_learner(agent: str, shared: bool) -> None:
    config = config_of(agent, shared_encoder=shared)
    of = agent_of(config)
    policy = agent_kind(agent).build_policy(config, SPACES, ranks=np.zeros(3), seed=0)
    assert isinstance(policy, RecurrentPolicy)
    policy.sync_model(of.model_info())
    obs = np.random.default_rng(0).uniform(-1, 1, (3, STEPS + 1, 3)).astype(np.float32)
    y_BSH = of.pi.windows(
        {"obs": torch.from_numpy(obs)}, torch.zeros(3, SIZE), torch.zeros(3).long(), 0, STEPS
    )
    output = of.pi.output(y_BSH.flatten(0, 1)).view(3, STEPS + 1, -1)[:, :, :D]
    learned = (output.tanh() if agent == "sac" else output).detach().numpy()
    for step in range(STEPS + 1):
        begins = np.full(3, step == 0)
        acted = policy.act({"obs": obs[:, step]}, explore=False, begins=begins)
        np.testing.assert_allclose(acted, learned[:, step], atol=1e-5)


@pytest.mark.parametrize("agent", [*KINDS])
def test_rewards_are_scaled_and_quantiles_learned(agent: str) -> None:
    """Of a window without a next value the targets are the rewards: quantiles move to them."""
    settings = {"reward_scale": 5.0} if agent == "sac" else {}
    config = config_of(agent, n_quantiles=3, dropped_quantiles=1, discount=0.0, **settings)
    batch = batch_of(drawn_actions)
    record = agent_of(config).opt(batch, record=True).record
    rewards = [
        float(batch["reward"][row, BURNED[row] + t]) for row in range(3) for t in range(LENGTH[row])
    ]
    scale = settings.get("reward_scale", 1.0)
    assert record["target_mean"] == pytest.approx(scale * np.mean(rewards), rel=1e-5)


def test_sacs_critics_have_targets_with_memory() -> None:
    config = SacConfig(memory="gru")
    without = SacConfig()
    assert (config.critic_architecture, config.policy_delay) == ("mlp", 1)
    assert config.learning_rate == config.alpha_learning_rate == 3e-4
    assert config.batch_size == 32
    assert without.critic_architecture == "batch_norm"
    assert SacConfig(memory="gru", critic_architecture="residual").learning_rate == 3e-4
    assert config.usual_samples_per_insert == without.usual_samples_per_insert == 256


@pytest.mark.parametrize(
    ("agent", "settings", "fix"),
    [
        ("sac", {"critic_architecture": "batch_norm"}, "set critic_architecture=mlp"),
        ("td3", {"critic_architecture": "batch_norm"}, "set critic_architecture=mlp"),
        ("sac", {"imitation": {"loss": "cross_entropy"}}, "set imitation.loss=none"),
    ],
)
def test_what_is_not_built_beside_memory_is_refused(
    agent: str, settings: dict[str, Any], fix: str
) -> None:
    with pytest.raises(WrongSettingsError, match=f"memory is gru, .*{fix}"):
        config_of(agent, **settings)


@pytest.mark.parametrize("agent", [*KINDS])
def test_clients_of_other_languages_are_told_of_the_core(agent: str) -> None:
    config = config_of(agent)
    kind = agent_kind(agent)
    assert kind.describe is not None
    described = kind.describe(config, SPACES)
    assert described is not None
    ((name, layers),) = described["networks"]
    assert (name, layers[0][0], layers[0][-1]) == ("policy", "gru", config.core_size)
