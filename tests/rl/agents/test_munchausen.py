"""Munchausen's target."""

from __future__ import annotations

import math

import numpy as np
import torch

from vedette_rl.agents.action_heads import ActionHeads
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.config import MunchausenConfig
from vedette_rl.agents.munchausen import Munchausen


def test_munchausens_target_by_hand() -> None:
    """tau = 1: pi is (1/4, 3/4) before, (1/2, 1/2) and (1/4, 3/4) after."""
    heads = ActionHeads(DiscreteActions((2,), (5,)), "cpu")
    munchausen = Munchausen(MunchausenConfig(alpha=0.5, temperature=1.0), heads)
    batch = {"reward": torch.tensor([1.0, 1.0]), "action": torch.tensor([6, 5])}
    before = torch.tensor([[0.0, math.log(3.0)], [0.0, math.log(3.0)]])
    found = munchausen.reward(batch, before)
    # log(1/4) = -1.39 counts as -1
    torch.testing.assert_close(found, torch.tensor([1.0 + 0.5 * math.log(0.75), 0.5]))
    after = torch.tensor([[2.0, 2.0], [0.0, math.log(3.0)]])
    found = munchausen.value(after, after.unsqueeze(1))
    torch.testing.assert_close(found, torch.tensor([[2.0 + math.log(2.0)], [math.log(4.0)]]))


def test_munchausens_target_of_ragged_heads_equals_a_plain_formulation() -> None:
    heads = ActionHeads(DiscreteActions((2, 3), (0, 4), (2,)), "cpu")
    config = MunchausenConfig(alpha=0.7, temperature=0.3, lowest=-0.4)
    munchausen = Munchausen(config, heads)
    rng = np.random.default_rng(0)
    q, z = rng.normal(size=(6, 5)), rng.normal(size=(6, 4, 5))
    action = np.stack([rng.integers(2, size=6), 4 + rng.integers(3, size=6)], 1)
    reward = np.ones(6)
    value = np.zeros((6, 4))
    for b in range(6):
        for first, size, chosen in ((0, 2, action[b, 0]), (2, 3, action[b, 1] - 4)):
            weights = np.exp(q[b, first : first + size] / 0.3)
            pi = weights / weights.sum()
            reward[b] += 0.7 * max(0.3 * math.log(pi[chosen]), -0.4) / 2
            for m in range(4):
                each = z[b, m, first : first + size] - 0.3 * np.log(pi)
                value[b, m] += (pi * each).sum() / 2
    batch = {"reward": torch.ones(6, dtype=torch.float64), "action": torch.from_numpy(action)}
    np.testing.assert_allclose(munchausen.reward(batch, torch.from_numpy(q)), reward)
    np.testing.assert_allclose(munchausen.value(torch.from_numpy(q), torch.from_numpy(z)), value)
