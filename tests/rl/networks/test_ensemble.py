"""Networks computed together are networks computed apart."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from vedette_rl.networks.ensemble import EnsembleMlp
from vedette_rl.networks.mlp import Mlp
from vedette_rl.networks.numpy_mlp import NumpyMlp, mlp_shapes
from vedette_rl.networks.threads import load_torch_single_threaded


def test_members_equal_networks_of_their_own() -> None:
    torch.manual_seed(0)
    ensemble = EnsembleMlp(3, (4, 6, 5))
    x = torch.randn(7, 4)
    together = ensemble(x)
    assert together.shape == (3, 7)
    for member in range(3):
        alone = Mlp((4, 6, 5, 1))
        for k, layer in enumerate(alone):
            layer.weight.data.copy_(ensemble.weights[k][member].t())  # type: ignore[operator]  # a Linear
            layer.bias.data.copy_(ensemble.biases[k][member, 0])  # type: ignore[operator]  # a Linear
        torch.testing.assert_close(together[member], alone(x).squeeze(1))


def test_members_begin_different() -> None:
    weights = EnsembleMlp(2, (4, 6)).weights[0]
    assert not torch.equal(weights[0], weights[1])


@pytest.mark.parametrize("relu_last", [False, True])
def test_numpy_equals_torch(relu_last: bool) -> None:
    torch.manual_seed(0)
    network = Mlp((4, 6, 3), relu_last=relu_last)
    arrays = {f"q.{name}": p.detach().numpy() for name, p in network.named_parameters()}
    assert mlp_shapes("q", (4, 6, 3)) == {name: array.shape for name, array in arrays.items()}
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    ours = NumpyMlp(arrays, "q", relu_last=relu_last)(x)
    np.testing.assert_allclose(
        ours, network(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_a_network_without_layers_changes_nothing() -> None:
    x = np.array([[-1, 2]], np.float32)
    assert NumpyMlp({}, "q", relu_last=True)(x) is x
    assert torch.equal(Mlp((2,), relu_last=True)(torch.from_numpy(x)), torch.from_numpy(x))


def test_a_process_that_uses_torch_keeps_its_threads() -> None:
    assert "torch" in sys.modules
    before = torch.get_num_threads()
    load_torch_single_threaded()
    assert torch.get_num_threads() == before
