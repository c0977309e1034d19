"""Networks computed together are networks computed apart, and in numpy what they are in torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vedette_rl.networks.batch_norm_folding import fold_batch_norm
from vedette_rl.networks.layers import MlpSizes
from vedette_rl.networks.numpy_nets import NumpyMlp, mlp_shapes
from vedette_rl.networks.threads import load_torch_single_threaded
from vedette_rl.networks.torch_network import EnsembleMlp, Mlp

ARCHITECTURES = ["mlp", "layer_norm", "residual"]


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_members_equal_networks_of_their_own(architecture: Any, outputs: int) -> None:
    """In their values and gradients; one output is computed in another way than several."""
    torch.manual_seed(0)
    sizes = MlpSizes((4, 6, 6, outputs), architecture=architecture)
    ensemble = EnsembleMlp(3, sizes)
    x = torch.randn(7, 4)
    together = ensemble(x)
    assert together.shape == (3, 7, outputs)
    together.square().sum().backward()
    for member in range(3):
        alone = Mlp(sizes)
        for k, layer in enumerate(alone):
            layer.weight.data.copy_(ensemble.weights[k][member].t())  # type: ignore[operator]  # a Linear
            layer.bias.data.copy_(ensemble.biases[k][member, 0])  # type: ignore[operator]  # a Linear
        torch.testing.assert_close(together[member], alone(x))
        alone(x).square().sum().backward()
        for k, layer in enumerate(alone):
            ours, theirs = ensemble.weights[k].grad, layer.weight.grad
            torch.testing.assert_close(ours[member].t(), theirs)  # type: ignore[index]  # it has one
            ours, theirs = ensemble.biases[k].grad, layer.bias.grad
            torch.testing.assert_close(ours[member, 0], theirs)  # type: ignore[index]  # it has one


def test_members_begin_different() -> None:
    weights = EnsembleMlp(2, MlpSizes((4, 6, 1))).weights[0]
    assert not torch.equal(weights[0], weights[1])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("relu_last", [False, True])
def test_numpy_equals_torch(relu_last: bool, architecture: Any) -> None:
    torch.manual_seed(0)
    sizes = MlpSizes((4, 6, 6, 3), relu_last, architecture)
    network = Mlp(sizes)
    arrays = {f"q.{name}": p.detach().numpy() for name, p in network.named_parameters()}
    assert mlp_shapes("q", sizes) == {name: array.shape for name, array in arrays.items()}
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    given = x.copy()
    ours = NumpyMlp(arrays, "q", sizes)(x)
    expected = network(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(x, given)


def test_layer_norm_equals_torchs_modules() -> None:
    torch.manual_seed(0)
    network = Mlp(MlpSizes((4, 6, 5, 3), architecture="layer_norm"))
    plain = nn.Sequential(
        network[0],
        nn.LayerNorm(6, elementwise_affine=False),
        nn.ReLU(),
        network[1],
        nn.LayerNorm(5, elementwise_affine=False),
        nn.ReLU(),
        network[2],
    )
    x = torch.randn(7, 4)
    torch.testing.assert_close(network(x), plain(x))


def test_batch_norm_by_hand() -> None:
    """Each critic has statistics, gains and offsets of its own, in front of each layer."""
    torch.manual_seed(0)
    critics = EnsembleMlp(2, MlpSizes((3, 4, 1), architecture="batch_norm"))
    for parameter in (*critics.gains, *critics.offsets):
        parameter.data.normal_()
    x = torch.randn(50, 3) * 5 + 2

    def layer(
        k: int, member: int, x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor
    ) -> torch.Tensor:
        normalized = (x - mean) / (variance + 1e-3).sqrt()
        x = normalized * critics.gains[k][member] + critics.offsets[k][member]
        return x @ critics.weights[k][member] + critics.biases[k][member]

    def values(member: int, counts: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Those of a critic by the batch's statistics or the first ones, and its hidden layer."""
        y = x
        hidden = x
        for k in (0, 1):
            hidden = torch.relu(y) if k else x
            mean, variance = torch.zeros(1), torch.ones(1)
            if counts:
                mean = hidden.mean(0)
                variance = hidden.var(0, correction=0)
            y = layer(k, member, hidden, mean, variance)
        return y, hidden

    before = [each.clone() for each in critics.statistics]
    found = critics(x)
    for member in (0, 1):
        torch.testing.assert_close(found[member], values(member, False)[0])
    assert all(map(torch.equal, critics.statistics, before))
    found = critics(x, counts=True)
    for member in (0, 1):
        expected, hidden = values(member, True)
        torch.testing.assert_close(found[member], expected, rtol=1e-4, atol=1e-5)
        mean, variance = critics.statistics[1][:, member]
        torch.testing.assert_close(mean, 0.01 * hidden.mean(0))
        torch.testing.assert_close(variance, 0.99 + 0.01 * hidden.var(0))
    assert not any(each.requires_grad for each in critics.statistics)


def test_residual_blocks_are_those_of_simba() -> None:
    """Equation by equation: embed, x + W2 relu(W1 norm(x)) for each block, norm, output."""
    torch.manual_seed(0)
    network = Mlp(MlpSizes((4, 6, 6, 3), architecture="residual"))
    assert [tuple(layer.weight.shape) for layer in network] == [  # type: ignore[operator]  # a Linear
        (6, 4),
        (24, 6),
        (6, 24),
        (24, 6),
        (6, 24),
        (3, 6),
    ]

    def norm(x: torch.Tensor) -> torch.Tensor:
        centered = x - x.mean(dim=1, keepdim=True)
        return centered / (centered.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()

    x = torch.randn(7, 4)
    h = network[0](x)
    for k in (1, 3):
        h = h + network[k + 1](torch.relu(network[k](norm(h))))
    torch.testing.assert_close(network(x), network[5](norm(h)))


def test_a_network_without_layers_changes_nothing() -> None:
    x = np.array([[-1, 2]], np.float32)
    sizes = MlpSizes((2,), relu_last=True)
    assert NumpyMlp({}, "q", sizes)(x) is x
    assert torch.equal(Mlp(sizes)(torch.from_numpy(x)), torch.from_numpy(x))


def test_a_process_that_uses_torch_keeps_its_threads() -> None:
    assert "torch" in sys.modules
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        load_torch_single_threaded()
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


RENORM_WARMUP = 100_000


def test_batch_renorm_by_hand() -> None:
    """Ioffe's equations once 100,000 batches were counted, with r and d beyond their bounds, too;
    until then it is batch normalization bit by bit."""
    torch.manual_seed(0)
    network = EnsembleMlp(2, MlpSizes((3, 4, 1), architecture="batch_renorm"))
    plain = EnsembleMlp(2, MlpSizes((3, 4, 1), architecture="batch_norm"))
    for parameter in (*network.gains, *network.offsets):
        parameter.data.normal_()
    for each in network.statistics:
        each.data[1].uniform_(0.5, 2.0)
    plain.load_state_dict(network.state_dict(), strict=False)
    x = torch.randn(50, 3) * torch.tensor([1.0, 9.0, 0.05]) + torch.tensor([0.1, 20.0, -20.0])

    def learned(found: EnsembleMlp) -> list[torch.Tensor]:
        found.zero_grad()
        output = found(x, counts=True)
        torch.autograd.backward(output.square().sum())
        gradients = (p.grad for p in found.parameters() if p.grad is not None)
        return [output.detach(), *gradients, *found.statistics]

    network.counted.data.fill_(RENORM_WARMUP - 1)
    for ours, theirs in zip(learned(network), learned(plain), strict=True):
        assert torch.equal(ours, theirs)
    assert network.counted == RENORM_WARMUP

    def expected(member: int) -> torch.Tensor:
        y = x
        for k in (0, 1):
            mean, variance = before[k][:, member]
            deviation = (variance + 1e-3).sqrt()
            batch_deviation = (y.var(0, correction=0) + 1e-3).sqrt()
            r = (batch_deviation / deviation).clip(1 / 3, 3).detach()
            d = ((y.mean(0) - mean) / deviation).clip(-5, 5).detach()
            bounds.append((float(r.min()), float(r.max()), float(d.min()), float(d.max())))
            normalized = (y - y.mean(0)) / batch_deviation * r + d
            normalized = network.gains[k][member] * normalized + network.offsets[k][member]
            y = normalized @ network.weights[k][member] + network.biases[k][member]
            y = torch.relu(y) if k == 0 else y
        return y

    bounds: list[tuple[float, ...]] = []
    before = [each.detach().clone() for each in network.statistics]
    outputs = torch.stack([expected(member) for member in (0, 1)])
    assert bounds[0] == (pytest.approx(1 / 3), 3.0, -5.0, 5.0)
    learning = [p for p in network.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(outputs.square().sum(), learning)
    network.zero_grad()
    found = network(x, counts=True)
    torch.autograd.backward(found.square().sum())
    torch.testing.assert_close(found, outputs, rtol=1e-4, atol=1e-5)
    for parameter, gradient in zip(learning, gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-4)
    mean, variance = network.statistics[0][:, 1]
    torch.testing.assert_close(mean, 0.99 * before[0][0, 1] + 0.01 * x.mean(0))
    torch.testing.assert_close(variance, 0.99 * before[0][1, 1] + 0.01 * x.var(0))
    assert network.counted == RENORM_WARMUP
    plain.load_state_dict(network.state_dict(), strict=False)
    assert torch.equal(network(x), plain(x))


@pytest.mark.parametrize("architecture", ["batch_norm", "batch_renorm"])
@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("features", [3, 17, 256])
def test_batch_norm_of_all_members_at_once_is_that_of_each(
    features: int, counts: bool, architecture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and running statistics bit by bit, gradients to the rounding of their sums."""

    def results() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        torch.manual_seed(0)
        network = EnsembleMlp(3, MlpSizes((features, 20, 1), architecture=architecture))
        if architecture == "batch_renorm":
            network.counted.data.fill_(RENORM_WARMUP)
        for parameter in (*network.gains, *network.offsets):
            parameter.data += 0.1 * torch.randn_like(parameter)
        x = (3.0 * torch.randn(64, features) + 1.0).requires_grad_()
        output = network(x, counts)
        torch.autograd.backward(output.square().sum())
        gradients = [x.grad, *(parameter.grad for parameter in network.parameters())]
        return [output, *network.statistics], [g for g in gradients if g is not None]

    values_apart, gradients_apart = results()
    monkeypatch.setattr(EnsembleMlp, "_normalize_batch", EnsembleMlp._normalize_together)
    values, gradients = results()
    for ours, apart in zip(values, values_apart, strict=True):
        assert torch.equal(ours, apart)
    for ours, apart in zip(gradients, gradients_apart, strict=True):
        torch.testing.assert_close(ours, apart, rtol=1e-5, atol=1e-6 * float(apart.abs().max()))


def test_a_folded_network_is_the_normalized_one() -> None:
    torch.manual_seed(0)
    sizes = MlpSizes((4, 6, 5, 3), architecture="batch_norm")
    network = EnsembleMlp(1, sizes)
    for parameter in (*network.gains, *network.offsets, *(each[0] for each in network.statistics)):
        parameter.data.normal_()
    for each in network.statistics:
        each.data[1].uniform_(0.0, 3.0)
    arrays = {f"pi.{name}": p.detach().numpy() for name, p in network.named_parameters()}
    folded = fold_batch_norm({"encoder.0": np.ones(2, np.float32), **arrays}, "pi")
    assert folded.pop("encoder.0").tolist() == [1.0, 1.0]
    plain = MlpSizes(sizes.sizes)
    assert {name: array.shape for name, array in folded.items()} == mlp_shapes("pi", plain)
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    expected = network(torch.from_numpy(x)).detach().numpy()[0]
    found = NumpyMlp(folded, "pi", plain)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
