"""A network as one vector behaves as its parameters do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from vedette_rl.networks.adam import AdamTensors, VectorAdam
from vedette_rl.networks.layers import MlpSizes
from vedette_rl.networks.parameter_vector import ParameterVector
from vedette_rl.networks.torch_network import Mlp
from vedette_rl.settings.stored import ScheduleConfig
from vedette_rl.storage.checkpoints import find_not_finite


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.1, 1e6])
@pytest.mark.parametrize("beta1", [0.9, 0.5])
def test_adam_on_a_vector_equals_torchs_adam(
    beta1: float, max_grad_norm: float, weight_decay: float
) -> None:
    torch.manual_seed(0)
    ours, theirs = Mlp(MlpSizes((3, 5, 2))), Mlp(MlpSizes((3, 5, 2)))
    theirs.load_state_dict(ours.state_dict())
    vector = ParameterVector(ours, learns=True)
    settings = {"eps": 1e-4, "weight_decay": weight_decay}
    clipped = {"max_grad_norm": max_grad_norm, **settings}
    adam = VectorAdam(vector, learning_rate=0.02, beta1=beta1, **clipped)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.02, betas=(beta1, 0.999), **settings)
    for _ in range(20):
        x = torch.randn(6, 3)
        adam.zero_grad()
        torch.autograd.backward(ours(x).square().sum())
        adam.step()
        reference.zero_grad()
        torch.autograd.backward(theirs(x).square().sum())
        if max_grad_norm:
            nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm)
        reference.step()
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(ours.get_parameter(name), parameter, rtol=1e-4, atol=1e-6)


def _no_fused_call(*_: object) -> None:
    raise TypeError("_fused_adam_() got an unexpected keyword argument")


def _no_fused_optimizer(*arguments: Any, fused: bool = False, **keywords: Any) -> torch.optim.Adam:
    if fused:
        raise RuntimeError("`fused=True` requires all the params to be on supported devices")
    return ADAM(*arguments, **keywords)


ADAM = torch.optim.Adam


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.1])
@pytest.mark.parametrize("fused_optimizer", [True, False])
@pytest.mark.parametrize(("beta1", "counts"), [(0.9, (70, 60)), (0.5, (20, 15))])
def test_without_the_private_call_a_step_is_the_same_to_rounding(
    monkeypatch: pytest.MonkeyPatch,
    beta1: float,
    counts: tuple[int, int],
    fused_optimizer: bool,
    max_grad_norm: float,
) -> None:
    """With a decay of 0.5 a rounding grows twentyfold in ten steps later on."""

    def trained(steps: tuple[int, int]) -> tuple[Mlp, VectorAdam]:
        """Its state goes through get_state and set_state after the first of the two counts."""
        torch.manual_seed(0)
        network = Mlp(MlpSizes((3, 5, 2)))
        vector = ParameterVector(network, learns=True)
        settings = {"learning_rate": 0.02, "beta1": beta1, "eps": 1e-4}
        settings["max_grad_norm"] = max_grad_norm
        adam = VectorAdam(vector, **settings)
        for count in steps:
            for _ in range(count):
                adam.zero_grad()
                torch.autograd.backward(network(torch.randn(6, 3)).square().sum())
                adam.step()
            state = adam.get_state()
            adam = VectorAdam(vector, **settings)
            adam.set_state(state)
        return network, adam

    expected, adam = trained(counts)
    monkeypatch.setattr(AdamTensors, "_fused_step", _no_fused_call)
    if not fused_optimizer:
        monkeypatch.setattr(torch.optim, "Adam", _no_fused_optimizer)
    found, other = trained(counts)
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(found.get_parameter(name), parameter, rtol=1e-4, atol=1e-6)
    assert other.get_state()["step"] == adam.get_state()["step"] == sum(counts)
    assert float(other.grad_norm()) == pytest.approx(float(adam.grad_norm()), rel=1e-3)


def test_parameters_are_views_that_begin_on_cache_lines() -> None:
    network = Mlp(MlpSizes((3, 5, 2)))
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    vector = ParameterVector(network, learns=True)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name])
        assert (parameter.data_ptr() - vector.data.data_ptr()) % 64 == 0
    vector.data.zero_()
    assert all(not p.any() for p in network.parameters())


def test_what_lies_between_parameters_stays_zero() -> None:
    network = Mlp(MlpSizes((3, 5, 2)))
    vector = ParameterVector(network, learns=True)
    adam = VectorAdam(vector, learning_rate=0.1)
    torch.autograd.backward(network(torch.ones(1, 3)).sum())
    adam.step()
    used = sum(p.count_nonzero() for p in network.parameters())
    assert vector.data.count_nonzero() == used


def test_a_network_that_does_not_learn_has_no_gradients() -> None:
    network = Mlp(MlpSizes((3, 2)))
    ParameterVector(network, learns=False)
    assert not network(torch.ones(1, 3)).requires_grad


def test_the_moments_of_a_dead_unit_never_become_denormal() -> None:
    network = Mlp(MlpSizes((3, 2)))
    vector = ParameterVector(network, learns=True)
    adam = VectorAdam(vector, learning_rate=0.1)
    torch.autograd.backward(network(torch.ones(1, 3)).sum())
    smallest = torch.finfo(torch.float32).tiny
    for _ in range(1500):
        adam.step()
        adam.zero_grad()
        state = adam.get_state()
        for moments in (state["exp_avg"], state["exp_avg_sq"]):
            for moment in moments.values():
                assert ((moment == 0) | (moment.abs() >= smallest)).all()
    assert not any(moment.any() for moment in adam.get_state()["exp_avg"].values())


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"warmup_opts": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
        ({"kind": "linear", "total_opts": 4, "final": 0.2}, [0.8, 0.6, 0.4, 0.2, 0.2, 0.2]),
        ({"kind": "cosine", "total_opts": 4}, [0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0.0, 0.0, 0.0]),
        ({"kind": "linear", "warmup_opts": 2, "total_opts": 6}, [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]),
    ],
)
@pytest.mark.parametrize("interval", [1, 2])
def test_the_step_size_follows_its_schedule(
    schedule: dict[str, Any], expected: list[float], interval: int
) -> None:
    """With a constant gradient each step of Adam is as long as the step size."""
    network = Mlp(MlpSizes((1, 1)))
    vector = ParameterVector(network, learns=True)
    config = ScheduleConfig(**schedule)
    adam = VectorAdam(vector, learning_rate=0.01, schedule=config, interval=interval)
    vector.grad.fill_(1.0)
    for factor in expected[interval - 1 :: interval]:
        before = network[0].weight.item()  # type: ignore[operator]  # a Linear
        adam.step()
        after = network[0].weight.item()  # type: ignore[operator]  # a Linear
        assert before - after == pytest.approx(0.01 * factor, rel=1e-3, abs=1e-6)


def test_a_resumed_schedule_goes_on() -> None:
    schedule = ScheduleConfig(kind="linear", total_opts=10)
    one, other = (
        VectorAdam(vector, learning_rate=0.01, schedule=schedule)
        for vector in (ParameterVector(Mlp(MlpSizes((1, 1))), learns=True) for _ in range(2))
    )
    for _ in range(7):
        one.step()
    other.set_state(one.get_state())
    other.step()
    assert other._rate.item() == pytest.approx(0.002)


def a_fit(adam: VectorAdam, network: nn.Module, steps: int, broken: dict[int, float]) -> float:
    """Fit a plane to good samples, of which one is as `broken` says; the mean error at the end."""
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        x = torch.randn(16, 3, generator=generator)
        y = x.sum(dim=1, keepdim=True)
        y[0] = broken.get(step, float(y[0]))
        adam.zero_grad()
        torch.autograd.backward((network(x) - y).square().mean())
        adam.step()
    x = torch.randn(500, 3, generator=generator)
    with torch.no_grad():
        return float((network(x) - x.sum(dim=1, keepdim=True)).abs().mean())


@pytest.mark.parametrize("value", [1e4, 1e6, 1e12, 1e20, 3e38, math.inf, math.nan])
def test_a_broken_sample_drawn_again_and_again_does_not_end_what_others_teach(
    value: float,
) -> None:
    def fitted(broken: dict[int, float]) -> tuple[float, VectorAdam]:
        torch.manual_seed(0)
        network = Mlp(MlpSizes((3, 16, 1)))
        adam = VectorAdam(ParameterVector(network, learns=True), learning_rate=3e-3)
        return a_fit(adam, network, 1000, broken), adam

    good, adam = fitted({})
    assert good < 0.3
    assert int(adam.left_out) == 0
    found, adam = fitted(dict.fromkeys(range(150, 950, 100), value))
    assert found < 3 * good
    assert int(adam.left_out) == (0 if value < 1e18 else 8)
    state = adam.get_state()
    assert all(moment.isfinite().all() for moment in state["exp_avg_sq"].values())


def test_a_broken_sample_of_every_fifth_step_teaches_no_more_than_others() -> None:
    """Its gradients of 30 typical norms would add up to more than those of all others."""
    torch.manual_seed(0)
    network = Mlp(MlpSizes((3, 16, 1)))
    adam = VectorAdam(ParameterVector(network, learns=True), learning_rate=3e-3)
    assert a_fit(adam, network, 1000, dict.fromkeys(range(150, 1000, 5), 1e6)) < 0.3


@pytest.mark.parametrize("steps", [(0, 400), (4,), (9, 20)])
def test_a_broken_sample_among_the_first_does_not_either(steps: tuple[int, ...]) -> None:
    """Before the tenth step nothing is typical."""
    torch.manual_seed(0)
    network = Mlp(MlpSizes((3, 16, 1)))
    adam = VectorAdam(ParameterVector(network, learns=True), learning_rate=3e-3)
    assert a_fit(adam, network, 1000, dict.fromkeys(steps, 1e12)) < 0.12


@pytest.mark.parametrize("fused", [True, False])
def test_a_gradient_that_is_no_number_moves_nothing(
    monkeypatch: pytest.MonkeyPatch, fused: bool
) -> None:
    if not fused:
        monkeypatch.setattr(AdamTensors, "_fused_step", _no_fused_call)
    torch.manual_seed(0)
    network = Mlp(MlpSizes((3, 2)))
    vector = ParameterVector(network, learns=True)
    adam = VectorAdam(vector, learning_rate=0.1, weight_decay=0.1)
    for _ in range(12):
        adam.zero_grad()
        torch.autograd.backward(network(torch.ones(1, 3)).sum())
        adam.step()
    before, state = vector.data.clone(), adam.get_state()
    vector.grad[0] = math.nan
    adam.step()
    assert torch.equal(vector.data, before)
    after = adam.get_state()
    for name in ("exp_avg", "exp_avg_sq"):
        for part, moment in state[name].items():
            assert torch.equal(after[name][part], moment)
    assert int(adam.left_out) == 1


def test_a_first_large_reward_among_zeros_moves_the_weights() -> None:
    def moved(scale: float) -> float:
        torch.manual_seed(0)
        network = Mlp(MlpSizes((3, 2)))
        vector = ParameterVector(network, learns=True)
        adam = VectorAdam(vector, learning_rate=0.01, eps=1e-3)
        for _ in range(300):
            adam.zero_grad()
            vector.grad += 1e-9
            adam.step()
        before = vector.data.clone()
        adam.zero_grad()
        torch.autograd.backward(scale * network(torch.ones(1, 3)).sum())
        adam.step()
        return float((vector.data - before).abs().max())

    assert moved(1.0) > 0.01
    assert moved(1e6) > 0.8 * moved(1.0)


def test_the_typical_norm_is_saved_and_a_state_without_it_is_read() -> None:
    network = Mlp(MlpSizes((3, 2)))
    adam = VectorAdam(ParameterVector(network, learns=True), learning_rate=0.1)
    for _ in range(40):
        adam.zero_grad()
        torch.autograd.backward(network(torch.ones(1, 3)).sum())
        adam.step()
    state = adam.get_state()
    assert state["typical_norm"] == pytest.approx(float(adam.grad_norm()), rel=0.8)
    other = VectorAdam(ParameterVector(Mlp(MlpSizes((3, 2))), learns=True), learning_rate=0.1)
    other.set_state(state)
    assert other.get_state()["typical_norm"] == state["typical_norm"]
    del state["typical_norm"]
    other.set_state(state)
    assert other.get_state()["typical_norm"] == 0.0


@pytest.mark.parametrize("saved_at", [0, 3, 7, 10, 13])
def test_a_resume_among_the_first_steps_knows_their_norms(saved_at: int) -> None:
    """The norm of step 5 is broken: what the tenth step does depends on it."""

    def made() -> tuple[Mlp, VectorAdam]:
        torch.manual_seed(0)
        network = Mlp(MlpSizes((3, 2)))
        return network, VectorAdam(ParameterVector(network, learns=True), learning_rate=0.1)

    def train(network: Mlp, adam: VectorAdam, begin: int, end: int) -> None:
        for step in range(begin, end):
            scale = 1e9 if step == 5 else 0.1 * (1 + step % 3)
            adam.zero_grad()
            torch.autograd.backward(scale * network(torch.ones(1, 3)).sum())
            adam.step()

    whole, adam = made()
    train(whole, adam, 0, saved_at)
    resumed, resumed_adam = made()
    resumed.load_state_dict(whole.state_dict())
    state = adam.get_state()
    assert find_not_finite(state) == ""
    resumed_adam.set_state(state)
    train(whole, adam, saved_at, 25)
    train(resumed, resumed_adam, saved_at, 25)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    after, resumed_after = adam.get_state(), resumed_adam.get_state()
    for name in ("typical_norm", "lowest_norm", "highest_norm"):
        assert after[name] == resumed_after[name]


FUSED = torch._fused_adam_


def as_on_apples_gpus(
    *arguments: Any, grad_scale: Any = None, found_inf: Any = None, **k: Any
) -> Any:
    """The kernel of MPS (pytorch#186360): it takes both, and uses neither."""
    return FUSED(*arguments, **k)


def without_found_inf(*arguments: Any, found_inf: Any = None, **keywords: Any) -> Any:
    return FUSED(*arguments, **keywords)


def with_rates_of_numbers_alone(*arguments: Any, lr: Any, **keywords: Any) -> Any:
    return FUSED(*arguments, lr=0.0 if isinstance(lr, torch.Tensor) else lr, **keywords)


@pytest.mark.parametrize("schedule", [None, ScheduleConfig(warmup_opts=1)])
@pytest.mark.parametrize(
    "kernel", [as_on_apples_gpus, without_found_inf, with_rates_of_numbers_alone]
)
def test_a_kernel_that_runs_and_does_something_else_is_not_used(
    kernel: Any, schedule: ScheduleConfig | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moments() -> list[torch.Tensor]:
        torch.manual_seed(0)
        network = Mlp(MlpSizes((4, 4)))
        vector = ParameterVector(network, learns=True)
        adam = VectorAdam(vector, learning_rate=1e-3, max_grad_norm=1.0, schedule=schedule)
        for gradient in (1000.0, math.nan, 1.0):
            vector.grad.fill_(gradient)
            adam.step()
        state = adam.get_state()
        return [vector.data, *state["exp_avg"].values(), *state["exp_avg_sq"].values()]

    expected = moments()
    assert float(expected[1].max()) < 0.1  # clipped to a norm of 1
    monkeypatch.setattr(torch, "_fused_adam_", kernel)
    # torch's own fused optimizer ends in the same call
    for found, right in zip(moments(), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-6)


def test_the_fused_call_is_used_where_it_does_as_it_should() -> None:
    for weight_decay in (0.0, 0.1):
        vector = ParameterVector(Mlp(MlpSizes((4, 4))), learns=True)
        adam = VectorAdam(vector, learning_rate=1e-3, weight_decay=weight_decay)
        assert adam._update.__name__ == "_fused_step"


@pytest.mark.parametrize("interval", [1, 3])
def test_a_schedule_counts_beyond_the_whole_numbers_of_float32(interval: int) -> None:
    schedule = ScheduleConfig(kind="linear", total_opts=40_000_000)
    vector = ParameterVector(Mlp(MlpSizes((2, 2))), learns=True)
    adam = VectorAdam(vector, learning_rate=1.0, schedule=schedule, interval=interval)
    begin = (2**24 - 6) // interval * interval
    state = adam.get_state()
    adam.set_state(state, opt_steps=begin)
    for _ in range(100):
        adam.move()
    opt_steps = begin + 100 * interval
    assert int(adam._opt_steps) == opt_steps
    assert float(adam._rate) == pytest.approx(1 - opt_steps / 40e6, abs=1e-6)


@pytest.mark.parametrize(
    ("max_grad_norm", "usual", "one", "kept"),
    [
        (0.0, 0.1, 1000.0, False),
        (5.0, 0.1, 1000.0, True),  # it was clipped to 5, which counts as it is
        (500.0, 0.1, 1000.0, False),  # 500 is still beyond 30 usual ones
        (0.0, 0.01, 9.0, True),  # beyond 30 usual ones, and not beyond what counts as it is
    ],
)
def test_moments_begin_anew_after_a_first_gradient_beyond_the_limit_as_it_was_clipped(
    max_grad_norm: float, usual: float, one: float, *, kept: bool
) -> None:
    vector = ParameterVector(Mlp(MlpSizes((1, 1))), learns=True)
    adam = VectorAdam(vector, learning_rate=0.01, max_grad_norm=max_grad_norm)
    for step in range(10):
        vector.grad.zero_()
        vector.grad[0] = one if step == 4 else usual
        adam.step()
    moments = adam.get_state()["exp_avg_sq"].values()
    assert any(moment.any() for moment in moments) is kept
