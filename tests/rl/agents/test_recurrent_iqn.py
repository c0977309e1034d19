"""IQN with memory: its step on windows beside one computed row by row, and what it refuses."""

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

from vedette_rl.agents.config import MunchausenConfig
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.iqn.policy import KIND
from vedette_rl.agents.iqn.recurrent import RecurrentIqnAgent
from vedette_rl.agents.recurrent_policy import RecurrentPolicy
from vedette_rl.agents.value_rescaling import rescale, restore
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import WrongSettingsError

SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4))
K, M, N = 5, 3, 2
SEED = 1


def drawn_actions(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
    return rng.integers(0, 4, shape)


def config_of(**settings: Any) -> IqnConfig:
    usual = {"hidden_sizes": (8, 8), "discount": GAMMA, "kappa": 0.5}
    quantiles = {"n_action_quantiles": K, "n_target_quantiles": M, "n_quantiles": N}
    return IqnConfig(memory="gru", memory_size=SIZE, **{**usual, **quantiles, **settings})


def agent_of(config: IqnConfig) -> RecurrentIqnAgent:
    """An agent whose target network has other weights than the online one, and prefers others."""
    agent = KIND.build_agent(config, SPACES, device="cpu", seed=SEED)
    assert isinstance(agent, RecurrentIqnAgent)
    other = KIND.build_agent(config, SPACES, device="cpu", seed=2).get_state()["target"]
    other["f.1.bias"] = torch.tensor([0.5, 0.0, 0.0, 0.0])
    agent.set_state({**agent.get_state(), "target": other})
    agent.expect_burn_in(BURN_IN)
    return agent


def fractions() -> tuple[torch.Tensor, ...]:
    """The quantile fractions that an agent draws first: K and M of all positions ``(3, S, ...)``,
    N of all rows ``(3, T, N)``."""
    generator = torch.Generator().manual_seed(SEED)
    sizes = ((STEPS + 1, K), (STEPS + 1, M), (STEPS, N))
    return tuple(
        torch.rand(3 * positions, count, generator=generator).view(3, positions, count)
        for positions, count in sizes
    )


def quantile_loss(z: torch.Tensor, taus: torch.Tensor, target: torch.Tensor, kappa: float) -> Any:
    """Equation 3 of Dabney et al. 2018, one pair of samples after the other."""
    loss: Any = 0.0
    for one, tau in zip(z, taus, strict=True):
        for sample in target:
            delta = sample - one
            size = delta.abs()
            huber = torch.where(size <= kappa, 0.5 * delta**2, kappa * (size - 0.5 * kappa))
            loss = loss + (tau - float(delta < 0)).abs() * huber / kappa / len(target)
    return loss


def rows_of(
    agent: RecurrentIqnAgent, config: IqnConfig, batch: Batch
) -> tuple[list[list[Any]], list[list[Any]], list[list[Any]]]:
    """Each row's loss, its error of the means, and its predicted mean."""
    online, targets = (memories(network, batch) for network in (agent.online, agent.target))
    of_choice, of_target, of_row = fractions()
    losses: list[list[Any]] = [[], [], []]
    errors: list[list[Any]] = [[], [], []]
    means: list[list[Any]] = [[], [], []]
    for row in range(3):
        for t in range(LENGTH[row]):
            rewards, m, terminated = return_of(batch, row, t, config.n_step)
            target = rewards.repeat(M)
            if not terminated:
                y = online[row][t + m] if config.double else targets[row][t + m]
                chooser = agent.online if config.double else agent.target
                z = chooser.output(y, of_choice[row, t + m, None])[0]
                q = (restore(torch, z) if config.value_rescaling else z).mean(0)
                z = agent.target.output(targets[row][t + m], of_target[row, t + m, None])[0]
                best = z[:, q.argmax()].detach()
                target = target + GAMMA**m * (
                    restore(torch, best) if config.value_rescaling else best
                )
            if config.value_rescaling:
                target = rescale(torch, target)
            taken = batch["action"][row, BURNED[row] + t]
            z = agent.online.output(online[row][t], of_row[row, t, None])[0, :, taken]
            losses[row].append(quantile_loss(z, of_row[row, t], target, config.kappa))
            errors[row].append(target.mean() - z.mean())
            means[row].append(z.detach().mean())
    return losses, errors, means


@pytest.mark.parametrize(
    "settings",
    [
        {"n_step": 1},
        {"n_step": 3, "double": False},
        {"n_step": 2, "value_rescaling": True},
        {"double": False, "value_rescaling": True},
    ],
)
def test_a_step_is_that_of_networks_run_row_by_row(settings: dict[str, Any]) -> None:
    config = config_of(**settings)
    agent, other = agent_of(config), agent_of(config)
    batch = batch_of(drawn_actions)
    weights = torch.tensor([1.0, 0.5, 0.25])
    losses, errors, means = rows_of(other, config, batch)
    loss = mean_of(weights, losses)
    loss.backward()
    result = agent.opt(batch, weights, record=True)
    assert result.record["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    q_mean = float(mean_of(torch.ones(3), means))
    assert result.record["q_mean"] == pytest.approx(q_mean, rel=1e-4, abs=1e-6)
    assert_errors(result.td_errors, errors)
    assert_gradients(agent.online, other.online)


def test_acting_gives_the_choices_of_the_learner() -> None:
    config = config_of()
    agent = agent_of(config)
    policy = KIND.build_policy(config, SPACES, ranks=np.zeros(3), seed=0)
    assert isinstance(policy, RecurrentPolicy)
    policy.sync_model(agent.model_info())
    obs = np.random.default_rng(0).uniform(-1, 1, (3, STEPS + 1, 3)).astype(np.float32)
    y_BSH = agent.online.windows(
        {"obs": torch.from_numpy(obs)}, torch.zeros(3, SIZE), torch.zeros(3).long(), 0, STEPS
    )
    midpoints = ((torch.arange(K) + 0.5) / K)[None]
    q = agent.online.output(y_BSH.flatten(0, 1), midpoints).mean(1)
    learned = q.view(3, STEPS + 1, 4).argmax(2).numpy()
    for step in range(STEPS + 1):
        begins = np.full(3, step == 0)
        acted = policy.act({"obs": obs[:, step]}, explore=False, begins=begins)
        np.testing.assert_array_equal(acted, learned[:, step])


def test_exploring_remembers_whatever_fractions_are_drawn() -> None:
    config = config_of(exploration={"kind": "constant", "epsilon_final": 1.0})
    model = agent_of(config).model_info()
    policies = []
    for explore in (True, False):
        policy = KIND.build_policy(config, SPACES, ranks=np.zeros(3), seed=0)
        assert isinstance(policy, RecurrentPolicy)
        policy.sync_model(model)
        policies.append(policy)
        for seed in range(3):
            obs = np.random.default_rng(seed).uniform(-1, 1, (3, 3)).astype(np.float32)
            policy.act({"obs": obs}, explore=explore)
    ours, theirs = (policy.acted_columns()["memory"] for policy in policies)
    np.testing.assert_array_equal(ours, theirs)


def test_munchausens_target_is_refused_beside_memory() -> None:
    with pytest.raises(WrongSettingsError, match=r"memory is gru, .*set munchausen.alpha=0"):
        config_of(munchausen=MunchausenConfig(alpha=0.9))


def test_clients_of_other_languages_are_told_of_the_core() -> None:
    config = config_of()
    assert KIND.describe is not None
    described = KIND.describe(config, SPACES)
    assert described is not None
    name, layers = described["networks"][0]
    assert name == "psi"
    assert layers[0][0] == "gru"
    assert layers[0][-1] == config.memory_size
