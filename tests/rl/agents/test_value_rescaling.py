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
from vedette_rl.agents.value_rescaling import EPS, rescale, restore
from vedette_rl.core import ModelInfo
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


def test_munchausen_refuses_it() -> None:
    with pytest.raises(WrongSettingsError, match="value_rescaling"):
        DqnConfig(value_rescaling=True, munchausen=MunchausenConfig(alpha=0.9))
