"""A network as one vector behaves as its parameters do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vedette_rl.networks.adam import VectorAdam
from vedette_rl.networks.mlp import Mlp
from vedette_rl.networks.parameter_vector import ParameterVector


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.1, 1e6])
def test_adam_on_a_vector_equals_torchs_adam(max_grad_norm: float) -> None:
    torch.manual_seed(0)
    ours, theirs = Mlp((3, 5, 2)), Mlp((3, 5, 2))
    theirs.load_state_dict(ours.state_dict())
    vector = ParameterVector(ours, learns=True)
    adam = VectorAdam(vector, learning_rate=0.02, eps=1e-4, max_grad_norm=max_grad_norm)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.02, eps=1e-4)
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


def test_parameters_are_views_that_begin_on_cache_lines() -> None:
    network = Mlp((3, 5, 2))
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    vector = ParameterVector(network, learns=True)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name])
        assert (parameter.data_ptr() - vector.data.data_ptr()) % 64 == 0
    vector.data.zero_()
    assert all(not p.any() for p in network.parameters())


def test_what_lies_between_parameters_stays_zero() -> None:
    network = Mlp((3, 5, 2))
    vector = ParameterVector(network, learns=True)
    adam = VectorAdam(vector, learning_rate=0.1)
    torch.autograd.backward(network(torch.ones(1, 3)).sum())
    adam.step()
    used = sum(p.count_nonzero() for p in network.parameters())
    assert vector.data.count_nonzero() == used


def test_a_network_that_does_not_learn_has_no_gradients() -> None:
    network = Mlp((3, 2))
    ParameterVector(network, learns=False)
    assert not network(torch.ones(1, 3)).requires_grad


def test_the_moments_of_a_dead_unit_never_become_denormal() -> None:
    network = Mlp((3, 2))
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
