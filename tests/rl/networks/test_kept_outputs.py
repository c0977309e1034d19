"""What a network says of an observation, while the statistics of observations move."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.appo.network import PERCEPTRONS, NormalLayers, with_value
from vedette_rl.networks.kept_outputs import KeptOutputs
from vedette_rl.networks.layers import normalized_columns
from vedette_rl.networks.observation import choose_input
from vedette_rl.networks.torch_network import ObsNormalizer, RecurrentNetwork, build_network

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
MANY = spaces.Dict(
    {
        "angle": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        "gear": spaces.Discrete(4),
        "speed": spaces.Box(-np.inf, np.inf, (), np.float32),
    }
)
SEEN = spaces.Dict({"eye": spaces.Box(0, 255, (36, 36, 3), np.uint8), **MANY.spaces})


def observed(space: gym.Space, seed: int, rows: int = 64) -> dict[str, torch.Tensor]:
    """Columns; numbers lie around another mean in another spread for each seed."""
    rng = np.random.default_rng(seed)
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    columns = {}
    for name, part in parts.items():
        if isinstance(part, spaces.Discrete):
            column = rng.integers(part.n, size=rows)
        elif part.dtype == np.uint8:
            column = rng.integers(256, size=(rows, *part.shape), dtype=np.uint8)
        else:
            column = rng.normal(seed, 1 + seed / 4, (rows, *part.shape)).astype(np.float32)
        columns["obs/" + name if name else "obs"] = torch.from_numpy(column)
    return columns


@pytest.mark.parametrize("space", [VECTOR, MANY, SEEN], ids=["vector", "columns", "image"])
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_new_statistics_change_no_output(space: gym.Space, memory: str) -> None:
    torch.manual_seed(0)
    config = AppoConfig(memory=memory, memory_size=8)
    network = build_network(config, space, with_value(NormalLayers), 2)
    columns = normalized_columns(config, space)
    normalizer = ObsNormalizer(columns, "cpu")
    normalizer.update(observed(space, 1))
    looked_at = observed(space, 2, rows=5)

    def said() -> torch.Tensor:
        obs = normalizer.normalize(looked_at)
        if isinstance(network, RecurrentNetwork):
            return network.output(network.remember(obs, torch.zeros(5, 8)))
        return network(obs)

    before = said()
    mean, scale = (each.clone() for each in normalizer.statistics)
    normalizer.update(observed(space, 3))
    moved = said()
    assert not torch.allclose(moved, before, atol=1e-3), "the statistics matter"
    kept = KeptOutputs(network, choose_input(config, space), columns, list(PERCEPTRONS))
    kept.follow(mean, scale, *normalizer.statistics)
    torch.testing.assert_close(said(), before, atol=1e-5, rtol=1e-5)


def test_nothing_is_changed_where_nothing_is_normalised() -> None:
    config = AppoConfig(normalize_observations=False)
    network = build_network(config, VECTOR, with_value(NormalLayers), 2)
    before = [parameter.clone() for parameter in network.parameters()]
    columns = normalized_columns(config, VECTOR)
    kept = KeptOutputs(network, choose_input(config, VECTOR), columns, list(PERCEPTRONS))
    none = torch.zeros(0)
    kept.follow(none, none, none, none)
    assert all(map(torch.equal, before, network.parameters()))
