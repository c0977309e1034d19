"""The losses that several agents share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vedette_rl.agents.losses import quantile_huber_loss


def test_loss_by_hand() -> None:
    # deltas: 3, -1 from z = 1; -1, -5 from z = 5. Huber of kappa 1: 2.5, 0.5; 0.5, 4.5.
    loss = quantile_huber_loss(
        torch.tensor([[1.0, 5.0]]), torch.tensor([[0.25, 0.5]]), torch.tensor([[4.0, 0.0]]), 1.0
    )
    expected = (0.25 * 2.5 + 0.75 * 0.5) / 2 + (0.5 * 0.5 + 0.5 * 4.5) / 2
    assert loss.tolist() == [pytest.approx(expected)]


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
def test_loss_equals_that_of_the_papers_sums(kappa: float) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4, 5))
    taus = rng.random((4, 5))
    target = rng.normal(size=(4, 3)) * 3
    expected = np.zeros(4)
    for b in range(4):
        for i in range(5):
            for j in range(3):
                delta = target[b, j] - z[b, i]
                inside = abs(delta) <= kappa
                huber = delta**2 / 2 if inside else kappa * (abs(delta) - kappa / 2)
                expected[b] += abs(taus[b, i] - (delta < 0)) * huber / kappa / 3
    loss = quantile_huber_loss(
        torch.from_numpy(z), torch.from_numpy(taus), torch.from_numpy(target), kappa
    )
    np.testing.assert_allclose(loss.numpy(), expected)
