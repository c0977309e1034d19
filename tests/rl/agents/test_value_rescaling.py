"""Rescaled values beside the papers' form in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.agents.config import MunchausenConfig
from vedette_rl.agents.dqn.agent import DqnAgent
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.policy import KIND
from vedette_rl.agents.iqn.agent import IqnAgent
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.iqn.policy import KIND as IQN
from vedette_rl.agents.value_rescaling import EPS, rescale, restore
from vedette_rl.core import ModelInfo
from vedette_rl.device.ranks import draw_rows
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import WrongSettingsError

SIZES = np.geomspace(1e-6, 1e6, 200)
VALUES = np.concatenate([-SIZES[::-1], [0.0], SIZES])


def textbook(x: Any) -> Any:
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + EPS * x


def textbook_inverse(y: Any) -> Any:
    root = (np.sqrt(1 + 4 * EPS * (np.abs(y) + 1 + EPS)) - 1) / (2 * EPS)
    return np.sign(y) * (root**2 - 1)


def test_it_is_the_papers_function_to_seven_digits() -> None:
    float32 = VALUES.astype(np.float32)
    exact = np.longdouble(float32)
    np.testing.assert_allclose(rescale(np, float32), textbook(exact), rtol=3e-7)
    np.testing.assert_allclose(restore(np, float32), textbook_inverse(exact), rtol=6e-7)


def test_the_inverse_returns_every_size_in_float32() -> None:
    x = torch.from_numpy(VALUES.astype(np.float32))
    np.testing.assert_allclose(restore(torch, rescale(torch, x)), x, rtol=6e-7)
    assert rescale(torch, x).diff().min() > 0, "the best action stays the best"


def test_dqn_learns_the_rescaled_target(
    vector_discrete: Spaces, make_batch: Callable[..., dict[str, torch.Tensor]]
) -> None:
    """h(r + discount h^-1(v')), and not h(r) + discount v'."""
    config = DqnConfig(value_rescaling=True, n_step=1, discount=0.9)
    agent = DqnAgent(config, vector_discrete, device="cpu", seed=0)
    batch = make_batch(vector_discrete, 16)
    batch["reward"] *= 100
    with torch.no_grad():
        q_t = agent.target({"obs": batch["next_obs"]})
        best = agent.online({"obs": batch["next_obs"]}).argmax(1, keepdim=True)
        v_t = q_t.gather(1, best).squeeze(1).double().numpy()
        q = agent.online({"obs": batch["obs"]}).gather(1, batch["action"][:, None]).squeeze(1)
    discount_t = (0.9 ** batch["n_steps"].double() * ~batch["terminated"]).numpy()
    returns = batch["reward"].numpy() + discount_t * textbook_inverse(v_t)
    expected = np.abs(textbook(returns) - q.numpy())
    td_errors = agent.opt(batch).td_errors
    assert td_errors is not None
    np.testing.assert_allclose(td_errors, expected, rtol=1e-4)


def test_actors_report_the_errors_that_the_learner_would(
    make_batch: Callable[..., dict[str, torch.Tensor]],
) -> None:
    """Without double Q-learning, which actors do not have."""
    spaces = Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(3))
    config = DqnConfig(value_rescaling=True, double=False, n_step=1)
    agent = DqnAgent(config, spaces, device="cpu", seed=0)
    policy = KIND.build_policy(config, spaces, ranks=np.zeros(1), seed=0)
    model = agent.model_info()
    policy.sync_model(ModelInfo(model.version, dict(model.arrays)))
    batch = make_batch(spaces, 16)
    batch["reward"] *= 100
    rows = {name: column.numpy() for name, column in batch.items()}
    errors = policy.td_errors(rows)  # type: ignore[attr-defined]  # a TdErrorPolicy
    np.testing.assert_allclose(agent.opt(batch).td_errors, errors, rtol=1e-4)


@pytest.mark.parametrize("config", [DqnConfig, IqnConfig])
def test_munchausen_refuses_it(config: type[DqnConfig] | type[IqnConfig]) -> None:
    with pytest.raises(WrongSettingsError, match="value_rescaling"):
        config(value_rescaling=True, munchausen=MunchausenConfig(alpha=0.9))


THREE = Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(3))
"""Of which h by hand: h(3) = 1.003, h(8) = 2.008, h(15) = 3.015, h(-8) = -2.008."""


def iqn_agent(**settings: Any) -> IqnAgent:
    config = IqnConfig(value_rescaling=True, n_step=1, **settings)
    return IqnAgent(config, THREE, device="cpu", seed=0)


def test_iqn_learns_rescaled_samples_of_the_target_by_hand() -> None:
    """Of h(8) and h(-8): 7 + 1 (8) = 15 and 7 + 0.5 (-8) = 3; of an end the reward alone."""
    z_t = torch.tensor([[2.008], [-2.008], [2.008]])
    r_t = torch.tensor([[7.0], [7.0], [8.0]])
    discount_t = torch.tensor([[1.0], [0.5], [0.0]])
    target = iqn_agent().bootstrap(r_t, discount_t, z_t)
    torch.testing.assert_close(target, torch.tensor([[3.015], [1.003], [2.008]]))


def test_iqns_best_action_is_that_of_the_highest_mean_return() -> None:
    """8 for certain has the higher mean of h, and 0 or 17 the higher mean."""
    h_17 = 18**0.5 - 1 + 0.017
    z_BNA = torch.tensor([[[2.008, 0.0], [2.008, h_17]]])
    assert z_BNA.mean(dim=1).argmax() == 0
    means = iqn_agent().means(z_BNA)
    torch.testing.assert_close(means, torch.tensor([[8.0, 8.5]]))


def test_iqns_step_has_the_errors_of_its_rescaled_target(
    make_batch: Callable[..., dict[str, torch.Tensor]],
) -> None:
    """Beside a second formulation in float64, with the same quantile fractions."""
    agent = iqn_agent(discount=0.9, n_quantiles=4, n_target_quantiles=5, n_action_quantiles=6)
    batch = make_batch(THREE, 16)
    batch["reward"] *= 100
    drawn = torch.Generator().manual_seed(0)
    k, m, n = (draw_rows(torch.rand, (16, count), drawn) for count in (6, 5, 4))
    with torch.no_grad():
        q = textbook_inverse(agent.online({"obs": batch["next_obs"]}, k).double().numpy()).mean(1)
        z = agent.target({"obs": batch["next_obs"]}, m).double().numpy()
        z_tm1 = agent.online({"obs": batch["obs"]}, n).numpy()
    rows = np.arange(16)
    best = z[rows, :, q.argmax(1)]
    discount_t = (0.9 ** batch["n_steps"].double() * ~batch["terminated"]).numpy()
    returns = batch["reward"].numpy()[:, None] + discount_t[:, None] * textbook_inverse(best)
    predicted = z_tm1[rows, :, batch["action"].numpy()].mean(1)
    expected = np.abs(textbook(returns).mean(1) - predicted)
    td_errors = agent.opt(batch).td_errors
    assert td_errors is not None
    np.testing.assert_allclose(td_errors, expected, rtol=1e-4)


def test_iqn_acts_on_mean_returns_in_numpy_and_says_so_to_other_languages() -> None:
    config = IqnConfig(value_rescaling=True, n_action_quantiles=6)
    policy = IQN.build_policy(config, THREE, ranks=np.zeros(1), seed=0)
    model = IqnAgent(config, THREE, device="cpu", seed=0).model_info()
    arrays = {name: 30 * array for name, array in model.arrays.items()}
    policy.sync_model(ModelInfo(model.version, arrays))
    obs = {"obs": np.random.default_rng(0).uniform(-1, 1, (50, 4)).astype(np.float32)}
    taus = policy.constants[0]  # type: ignore[attr-defined]  # a ValuePolicy
    unscaled = IqnConfig(n_action_quantiles=6)
    plain = IQN.build_policy(unscaled, THREE, ranks=np.zeros(1), seed=0)
    plain.sync_model(ModelInfo(model.version, arrays))
    z = plain.network(obs, taus)  # type: ignore[attr-defined]
    values = policy.values(policy.network, obs, taus)  # type: ignore[attr-defined]
    np.testing.assert_allclose(values, textbook_inverse(np.float64(z)).mean(1), rtol=1e-4)
    assert (policy.act(obs, explore=False) != plain.act(obs, explore=False)).any()
    describe = IQN.describe
    assert describe is not None
    described = describe(config, THREE)
    assert described is not None
    assert described["head"] == "rescaled_quantiles"


def test_iqns_actors_report_errors_of_rescaled_values(
    make_batch: Callable[..., dict[str, torch.Tensor]],
) -> None:
    """|h(r + discount v') - h(q)|, with q and v' as the mean returns."""
    config = IqnConfig(value_rescaling=True, n_step=1, discount=0.9, n_action_quantiles=6)
    policy = IQN.build_policy(config, THREE, ranks=np.zeros(1), seed=0)
    policy.sync_model(IqnAgent(config, THREE, device="cpu", seed=0).model_info())
    rows = {name: column.numpy() for name, column in make_batch(THREE, 16).items()}
    rows["reward"] = rows["reward"] * 100

    def values(obs: str) -> Any:
        given = policy.network, {"obs": rows[obs]}, *policy.constants  # type: ignore[attr-defined]
        return np.float64(policy.values(*given))  # type: ignore[attr-defined]

    discount_t = 0.9 ** rows["n_steps"] * ~rows["terminated"]
    target = rows["reward"] + discount_t * values("next_obs").max(1)
    q = values("obs")[np.arange(16), rows["action"]]
    expected = np.abs(textbook(target) - textbook(q))
    errors = policy.td_errors(rows)  # type: ignore[attr-defined]  # a TdErrorPolicy
    np.testing.assert_allclose(errors, expected, rtol=1e-3, atol=1e-4)
