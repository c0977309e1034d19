"""Actions tanh(u) of a Gaussian u, and their densities."""

import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution
from torch.nn import functional

from vedette_rl.agents.sac.squashed_gaussian import log_pi_of, squashed_sample


def test_log_pi_equals_that_of_torchs_transformed_distribution() -> None:
    torch.manual_seed(0)
    mean, log_std, noise = torch.randn(3, 50, 4, dtype=torch.float64)
    action, log_pi = squashed_sample(mean, log_std, noise)
    squashed = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform(cache_size=1))
    before_squash = mean + log_std.exp() * noise
    torch.testing.assert_close(action, before_squash.tanh())
    kept = action.abs().amax(dim=1) < 1 - 1e-6  # where torch can still invert the tanh
    expected = squashed.log_prob(action).sum(dim=1)
    assert kept.sum() > 30
    torch.testing.assert_close(log_pi[kept], expected[kept], rtol=1e-6, atol=1e-6)


def test_gradients_of_a_sample_are_added_up_in_the_order_that_seeds_rely_on() -> None:
    torch.manual_seed(0)
    mean, log_std, noise, wanted = torch.randn(4, 500, 4)
    found = []
    for tanh_is_first in (None, False, True):
        leaves = [x.clone().requires_grad_() for x in (mean, log_std)]
        if tanh_is_first is None:
            action, log_pi = squashed_sample(*leaves, noise)
        else:
            u = leaves[0] + leaves[1].exp() * noise
            action = u.tanh() if tanh_is_first else u
            softplus = functional.softplus(-2.0 * u)
            log_pi = (2.0 * (u + softplus) - 0.5 * noise.square() - leaves[1]).sum(dim=1)
            action = action if tanh_is_first else u.tanh()
        torch.autograd.backward((action * wanted).sum() + 0.3 * log_pi.sum())
        found.append(leaves[0].grad)
    ours, as_before, other_order = found
    assert torch.equal(ours, as_before)
    assert not torch.equal(ours, other_order)  # rounding alone, and other weights after some steps


def test_log_pi_depends_on_the_standard_deviation() -> None:
    zero = torch.zeros(1, 1)
    _, narrow = squashed_sample(zero, torch.full((1, 1), -3.0), zero)
    _, wide = squashed_sample(zero, zero, zero)
    assert (narrow - wide).item() == pytest.approx(3.0)


def test_log_pi_is_finite_where_tanh_rounds_to_one() -> None:
    action, log_pi = squashed_sample(
        torch.tensor([[50.0, -50.0]]), torch.zeros(1, 2), torch.zeros(1, 2)
    )
    assert action.tolist() == [[1.0, -1.0]]
    assert torch.isfinite(log_pi).all()


def test_log_pi_of_given_actions_beside_torchs_distributions() -> None:
    rng = torch.Generator().manual_seed(0)
    mean, log_std = torch.randn(8, 3, generator=rng), torch.randn(8, 3, generator=rng)
    action = torch.rand(8, 3, generator=rng) * 1.9 - 0.95
    squashed = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform())
    expected = squashed.log_prob(action).sum(1)  # type: ignore[no-untyped-call]  # untyped in torch
    torch.testing.assert_close(log_pi_of(action, mean, log_std), expected, rtol=1e-4, atol=1e-4)


def test_log_pi_is_finite_at_the_bounds() -> None:
    edge = torch.tensor([[1.0, -1.0]])
    found = log_pi_of(edge, torch.zeros(1, 2), torch.full((1, 2), -3.0))
    assert torch.isfinite(found).all()
