"""Initial values are those of flax's layers where that is asked for."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.initial_values import draw_lecun_normal
from vedette_rl.networks.layers import MlpSizes
from vedette_rl.networks.torch_network import EnsembleMlp, Mlp

PIXELS = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)


@pytest.mark.parametrize(
    ("network", "first"), [(Mlp, "0.weight"), (lambda sizes: EnsembleMlp(2, sizes), "weights.0")]
)
def test_weights_have_the_quantiles_of_a_normal_cut_at_two_deviations(
    network: Any, first: str
) -> None:
    torch.manual_seed(0)
    drawn = network(MlpSizes((400, 300, 2)))
    draw_lecun_normal(drawn)
    named = dict(drawn.named_parameters())
    found = named[first].detach().flatten().sort().values.double()
    # by the inverse of its distribution function, which grows from P(x < -2) to P(x < 2)
    lowest, highest = torch.special.ndtr(torch.tensor([-2.0, 2.0], dtype=torch.float64))
    evenly = (torch.arange(len(found), dtype=torch.float64) + 0.5) / len(found)
    quantiles = torch.special.ndtri(lowest + (highest - lowest) * evenly)
    expected = quantiles / quantiles.std() * 400**-0.5
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.03 * 400**-0.5)
    biases = [parameter for name, parameter in named.items() if "bias" in name]
    assert len(biases) == 2
    assert not any(bias.any() for bias in biases)


def test_members_of_an_ensemble_begin_different() -> None:
    drawn = EnsembleMlp(2, MlpSizes((4, 6, 1)))
    draw_lecun_normal(drawn)
    assert not torch.equal(drawn.weights[0][0], drawn.weights[0][1])


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_policy_critics_and_targets_begin_so_and_encoders_as_ever(name: str) -> None:
    kind = agent_kind(name)
    spaces = Spaces(PIXELS, VECTOR)

    def state(**options: Any) -> dict[str, Any]:
        config = kind.config(hidden_sizes=(8, 8), critic_architecture="mlp", **options)
        return kind.build_agent(config, spaces, device="cpu", seed=0).get_state()

    own, flax = state(), state(weight_init="lecun_normal")
    targets = {"critics": "target", **({"policy": "target_policy"} if name == "td3" else {})}
    for part in ("policy", "critics"):
        for array, value in flax[part].items():
            if array.startswith("encoder."):
                assert torch.equal(value, own[part][array]), array
            elif "bias" in array:
                assert not value.any(), array
            else:
                assert not torch.equal(value, own[part][array]), array
            if part in targets:
                assert torch.equal(value, flax[targets[part]][array]), array
