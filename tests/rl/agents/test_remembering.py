"""Agents with memory learn what those without cannot: to name a sign that was shown first."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.spaces import Spaces

STEPS, SIZE, EPISODES = 4, 16, 32
SIGN = gym.spaces.Box(-1, 1, (1,), np.float32)
CASES: dict[str, tuple[gym.Space[Any], dict[str, Any], int]] = {
    "dqn": (gym.spaces.Discrete(2), {}, 120),
    "iqn": (gym.spaces.Discrete(2), {"n_action_quantiles": 8}, 120),
    "sac": (SIGN, {"learning_rate": 3e-3, "alpha": 0.01}, 200),
    "sac of its own": (SIGN, {"learning_rate": 3e-3, "alpha": 0.01, "shared_encoder": False}, 250),
    "td3": (SIGN, {"learning_rate": 3e-3}, 200),
    "td3 of its own": (SIGN, {"learning_rate": 3e-3, "shared_encoder": False}, 250),
}


def whole_episodes(rng: np.random.Generator, action: gym.Space[Any]) -> dict[str, torch.Tensor]:
    """Episodes of actions at random, whose last one is rewarded if it is the sign shown first."""
    sign = rng.choice([-1.0, 1.0], EPISODES)
    obs = np.zeros((EPISODES, STEPS + 1, 1), np.float32)
    obs[:, 0, 0] = sign
    discrete = isinstance(action, gym.spaces.Discrete)
    if discrete:
        taken = rng.integers(0, 2, (EPISODES, STEPS))
        named = 2.0 * taken[:, -1] - 1.0
    else:
        taken = rng.uniform(-1, 1, (EPISODES, STEPS, 1)).astype(np.float32)
        named = taken[:, -1, 0]
    reward = np.zeros((EPISODES, STEPS), np.float32)
    reward[:, -1] = 1.0 - np.abs(named - sign)
    columns = {
        "obs": obs,
        "action": taken,
        "reward": reward,
        "terminated": np.tile(np.arange(STEPS) == STEPS - 1, (EPISODES, 1)),
        "memory": np.zeros((EPISODES, SIZE), np.float32),
        "burned": np.zeros(EPISODES, np.int64),
        "length": np.full(EPISODES, STEPS),
        "learned": np.ones((EPISODES, STEPS), np.bool_),
    }
    return {name: torch.from_numpy(column) for name, column in columns.items()}


@pytest.mark.parametrize("case", CASES)
def test_it_learns_to_name_what_it_saw_first(case: str) -> None:
    action, options, steps = CASES[case]
    spaces = Spaces(gym.spaces.Box(-1, 1, (1,), np.float32), action)
    kind = agent_kind(case.partition(" ")[0])
    usual = {"hidden_sizes": (32, 32), "learning_rate": 5e-3, "target_update_interval": 5}
    config = kind.config(
        memory="gru",
        memory_size=SIZE,
        discount=0.9,
        normalize_observations=False,
        **{**usual, **options},
        **({"tau": 0.05} if action is SIGN else {}),
    )
    learner: Any = kind.build_agent(config, spaces, device="cpu", seed=0)
    learner.expect_burn_in(0)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        learner.opt(whole_episodes(rng, action))
    policy = kind.build_policy(config, spaces, ranks=np.zeros(2), seed=0)
    policy.sync_model(learner.model_info())
    obs = np.array([[-1.0], [1.0]], np.float32)
    for step in range(STEPS):
        acted = policy.act({"obs": obs}, explore=False, begins=np.full(2, step == 0))
        obs = np.zeros((2, 1), np.float32)
    named = acted.reshape(2).astype(np.float64)
    expected = [0, 1] if action is not SIGN else [-1, 1]
    np.testing.assert_allclose(named, expected, atol=0.3)
