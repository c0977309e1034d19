"""V-trace and the clipped loss: by hand, and beside other formulations of the same."""

from __future__ import annotations

import math

import pytest
import torch

from vedette_rl.agents.appo.loss import (
    Returns,
    clipped_loss,
    masked_mean,
    normalized,
    ratio,
    vtrace,
)

GAMMA = 0.5
CLIP = torch.tensor(0.2)


def one_run(
    *,
    rho: list[float],
    c: list[float],
    discount: list[float],
    joined: list[float],
    lambda_: float = 1.0,
) -> tuple[list[float], list[float]]:
    """Targets and advantages of a run of four steps with these rewards and values."""
    r_t = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
    v_tm1 = torch.tensor([[10.0, 20.0, 30.0, 40.0]])
    v_t = torch.tensor([[20.0, 30.0, 40.0, 50.0]])
    made = vtrace(
        r_t,
        torch.tensor([discount]),
        v_tm1,
        v_t,
        torch.tensor([joined]),
        torch.tensor([rho]),
        torch.tensor([c]),
        lambda_,
    )
    return made.targets[0].tolist(), made.advantages[0].tolist()


def test_targets_of_a_run_are_those_computed_by_hand() -> None:
    """Step 1 is truncated, step 3 is the run's last; ratios lie above and below the bounds."""
    targets, advantages = one_run(
        rho=[0.5, 1.0, 0.25, 1.0],
        c=[0.5, 1.0, 0.25, 0.5],
        discount=[0.5] * 4,
        joined=[1.0, 0.0, 1.0, 0.0],
    )
    delta = [0.5 * (1 + 10 - 10), 2 + 15 - 20, 0.25 * (4 + 20 - 30), 8 + 25 - 40]
    a_0 = delta[0] + 0.5 * 0.5 * delta[1]
    a_2 = delta[2] + 0.5 * 0.25 * delta[3]
    assert targets == [10 + a_0, 20 + delta[1], 30 + a_2, 40 + delta[3]]
    q = [
        1 + 0.5 * (20 + delta[1]),  # r + gamma v_s+1, the target of the next state
        2 + 0.5 * 30,  # truncated: by the value of its own successor
        4 + 0.5 * (40 + delta[3]),
        8 + 0.5 * 50,
    ]
    assert advantages == [q[0] - 10, q[1] - 20, q[2] - 30, q[3] - 40]


def test_a_terminated_step_has_no_value_beyond_it() -> None:
    targets, advantages = one_run(
        rho=[1.0] * 4, c=[1.0] * 4, discount=[0.5, 0.0, 0.5, 0.5], joined=[1.0, 0.0, 1.0, 0.0]
    )
    assert targets[1] == 2.0
    assert advantages[1] == 2.0 - 20.0
    assert targets[0] == 1.0 + 0.5 * 2.0


def random_runs(seed: int, runs: int = 3, steps: int = 7) -> dict[str, torch.Tensor]:
    """Runs in which episodes end, by termination and by truncation, and some that are shorter."""
    generator = torch.Generator().manual_seed(seed)

    def normal() -> torch.Tensor:
        return torch.randn(runs, steps, generator=generator, dtype=torch.float64)

    terminated = torch.rand(runs, steps, generator=generator) < 0.2
    truncated = torch.rand(runs, steps, generator=generator) < 0.2
    joined = (~(terminated | truncated)).double()
    joined[:, -1] = 0.0
    return {
        "r_t": normal(),
        "discount_t": 0.9 * (~terminated).double(),
        "v_tm1": normal(),
        "v_t": normal(),
        "joined_t": joined,
        "rho_t": normal().exp().clamp(max=1.5),
        "c_t": normal().exp().clamp(max=1.0),
    }


def consistent(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same, where the value of a successor is that of the next observation, if they are the
    same observation."""
    v_t = given["v_t"].clone()
    inside = given["joined_t"][:, :-1] > 0
    v_t[:, :-1] = torch.where(inside, given["v_tm1"][:, 1:], v_t[:, :-1])
    return {**given, "v_t": v_t}


def direct_targets(given: dict[str, torch.Tensor], lambda_: float) -> torch.Tensor:
    """Equation 1 as it is written: for each s the sum over t of a product of c, and delta."""
    g = {name: tensor.tolist() for name, tensor in given.items()}
    runs, steps = given["r_t"].shape
    targets = torch.zeros_like(given["r_t"])
    for k in range(runs):
        for s in range(steps):
            total = g["v_tm1"][k][s]
            weight = 1.0
            for t in range(s, steps):
                r, discount = g["r_t"][k][t], g["discount_t"][k][t]
                delta = g["rho_t"][k][t] * (r + discount * g["v_t"][k][t] - g["v_tm1"][k][t])
                total += weight * delta
                if not g["joined_t"][k][t]:
                    break
                weight *= discount * lambda_ * g["c_t"][k][t]
            targets[k, s] = total
    return targets


@pytest.mark.parametrize("lambda_", [1.0, 0.9, 0.0])
def test_the_recursion_is_the_sum_of_equation_1(lambda_: float) -> None:
    given = consistent(random_runs(1))
    assert torch.allclose(vtrace(**given, lambda_=lambda_).targets, direct_targets(given, lambda_))


def test_the_advantage_is_that_of_section_4_2() -> None:
    """q_s = r_s + gamma v_{s+1}, with the next state's own target, less V."""
    given = consistent(random_runs(2))
    made = vtrace(**given, lambda_=1.0)
    next_target = torch.cat([made.targets[:, 1:], given["v_t"][:, -1:]], dim=1)
    value = torch.where(given["joined_t"] > 0, next_target, given["v_t"])
    q_t = given["r_t"] + given["discount_t"] * value
    assert torch.allclose(made.advantages, q_t - given["v_tm1"])


@pytest.mark.parametrize("lambda_", [1.0, 0.95, 0.0])
def test_on_policy_it_is_gae(lambda_: float) -> None:
    """The sum of (gamma lambda)^l delta (Schulman et al. 2016, equation 16)."""
    given = consistent(random_runs(3))
    ones = torch.ones_like(given["r_t"])
    given |= {"rho_t": ones, "c_t": ones}
    made = vtrace(**given, lambda_=lambda_)
    delta = given["r_t"] + given["discount_t"] * given["v_t"] - given["v_tm1"]
    expected = torch.zeros_like(delta)
    for k in range(delta.shape[0]):
        for s in range(delta.shape[1]):
            weight = 1.0
            for t in range(s, delta.shape[1]):
                expected[k, s] += weight * delta[k, t]
                if not given["joined_t"][k, t]:
                    break
                weight *= 0.9 * lambda_
    assert torch.allclose(made.advantages, expected)
    assert torch.allclose(made.targets, expected + given["v_tm1"])


def test_nothing_of_the_next_episode_comes_in() -> None:
    given = random_runs(4, runs=1, steps=6)
    given["joined_t"] = torch.tensor([[1.0, 1.0, 0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    given["discount_t"] = torch.full((1, 6), 0.9, dtype=torch.float64)  # step 2 is truncated
    before = vtrace(**given, lambda_=0.95)
    later = {name: tensor.clone() for name, tensor in given.items()}
    later["v_tm1"][0, 3] += 100.0  # the first observation of the next episode
    after = vtrace(**later, lambda_=0.95)
    assert torch.equal(before.targets[0, :3], after.targets[0, :3])
    assert torch.equal(before.advantages[0, :3], after.advantages[0, :3])
    final = {name: tensor.clone() for name, tensor in given.items()}
    final["v_t"][0, 2] += 100.0  # the final observation of the truncated one
    moved = vtrace(**final, lambda_=0.95).targets[0] != before.targets[0]
    assert moved.tolist() == [True, True, True, False, False, False]


def test_runs_of_one_tensor_are_those_of_each_by_itself() -> None:
    given = random_runs(5)
    together = vtrace(**given, lambda_=0.9)
    for k in range(3):
        alone = vtrace(**{n: tensor[k : k + 1] for n, tensor in given.items()}, lambda_=0.9)
        for one, all_ in zip(alone, together, strict=True):
            assert torch.equal(one[0], all_[k])


def test_old_rows_lead_to_the_values_of_the_clipped_policy() -> None:
    """Two actions in one state that go back to it: the fixed point is V of pi_rho (equation 2), and
    without correction that of the policy that acted."""
    mu, pi, reward = [0.5, 0.5], [0.9, 0.1], [1.0, 0.0]

    def fixed_point(rho_max: float, corrected: bool) -> float:
        value = 0.0
        for _ in range(200):
            targets = 0.0
            for a in (0, 1):
                rho = min(rho_max, pi[a] / mu[a]) if corrected else 1.0
                one = torch.ones(1, 1, dtype=torch.float64)
                made: Returns = vtrace(
                    reward[a] * one, GAMMA * one, value * one, value * one, 0 * one, rho * one,
                    0 * one, 1.0,
                )  # fmt: skip
                targets += mu[a] * made.targets.item()
            value = targets
        return value

    assert fixed_point(10.0, corrected=True) == pytest.approx(0.9 / (1 - GAMMA))
    assert fixed_point(10.0, corrected=False) == pytest.approx(0.5 / (1 - GAMMA))
    clipped = [min(1.0 * m, p) for m, p in zip(mu, pi, strict=True)]  # pi_rho, to be normalised
    share = clipped[0] / sum(clipped)
    assert fixed_point(1.0, corrected=True) == pytest.approx(share / (1 - GAMMA))


def test_the_clipped_loss_is_ppos_around_the_policy_that_acted() -> None:
    r = torch.tensor([0.5, 0.5, 1.5, 1.5, 1.1])
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0])
    made = clipped_loss(r, advantage, CLIP, torch.ones(5))
    assert made.tolist() == pytest.approx([-0.5, 0.8, -1.2, 1.5, -2.2])


def test_the_gradient_is_0_where_it_is_clipped_and_nowhere_else() -> None:
    r = torch.tensor([0.5, 0.5, 1.5, 1.5, 1.1], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0])
    w = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.5])
    clipped_loss(r, advantage, CLIP, w).sum().backward()
    assert r.grad is not None
    assert r.grad.tolist() == [-1.0, 0.0, 0.0, 1.0, -1.0]


def test_at_the_first_step_the_gradient_is_that_of_v_trace() -> None:
    """r = 1 in value: the gradient is that of w A log pi."""
    log_pi = torch.tensor([-0.3, -1.2], requires_grad=True)
    advantage, w = torch.tensor([2.0, -3.0]), torch.tensor([0.5, 1.0])
    clipped_loss(ratio(log_pi, log_pi.detach()), advantage, CLIP, w).sum().backward()
    assert log_pi.grad is not None
    assert log_pi.grad.tolist() == [-1.0, 3.0]


def test_ratios_of_absurd_log_probabilities_are_finite() -> None:
    claimed = torch.tensor([1e30, -1e30])
    made = ratio(torch.zeros(2), claimed)
    assert made.tolist() == pytest.approx([math.exp(-20), math.exp(20)])


def test_means_and_normalised_advantages_leave_padding_out() -> None:
    x, mask = torch.tensor([1.0, 3.0, 1e6]), torch.tensor([1.0, 1.0, 0.0])
    assert masked_mean(x, mask) == 2.0
    made = normalized(x, mask)
    assert made[:2].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5])
    single = normalized(torch.tensor([5.0, 9.0]), torch.tensor([1.0, 0.0]))
    assert single[0] == 5.0
    assert masked_mean(x, torch.zeros(3)) == 0.0
