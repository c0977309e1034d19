"""Observations are scaled by the statistics of what was learned from, and the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from every_agent import OF_SAMPLES, spaces_for  # of tests/support
from torch import nn

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import ModelMismatchError
from vedette_rl.networks.layers import (
    NormalizedColumns,
    normalize_columns,
    normalized_columns,
)
from vedette_rl.networks.numpy_nets import NormalizedNetwork
from vedette_rl.networks.torch_network import NormalizedModule, ObsNormalizer, split_statistics
from vedette_rl.storage.checkpoints import take_weights, weight_parts
from vedette_rl.testing import sampled_transitions

ONE = NormalizedColumns((("obs", (3,)),))
MIXED = gym.spaces.Dict(
    {
        "arm": gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float32),
        "image": gym.spaces.Box(0, 255, (8, 8), np.uint8),
        "gear": gym.spaces.Discrete(4),
        "bits": gym.spaces.MultiBinary(3),
        "ticks": gym.spaces.Box(0, 9, (2,), np.int64),
        "speed": gym.spaces.Box(-1, 1, (), np.float64),
    }
)


def batches(count: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    return [
        torch.from_numpy(rng.normal(5.0 * k, 3.0, (16, 3)).astype(np.float32)) for k in range(count)
    ]


def test_two_batches_by_hand() -> None:
    normalizer = ObsNormalizer(NormalizedColumns((("obs", (1,)),)), "cpu")
    normalizer.update({"obs": torch.tensor([[0.0], [2.0]])})
    state = normalizer.get_state()
    assert (state["mean"].item(), state["variance"].item()) == (1.0, 1.0)
    normalizer.update({"obs": torch.tensor([[5.0], [5.0]])})
    state = normalizer.get_state()  # of 0, 2, 5 and 5
    assert state["mean"].item() == 3.0
    assert state["variance"].item() == pytest.approx((9 + 1 + 4 + 4) / 4)
    columns = normalizer.observations({"next_obs": torch.tensor([[3.0], [7.5]])}, "next_obs")
    torch.testing.assert_close(columns["obs"], torch.tensor([[0.0], [4.5 / 4.5**0.5]]))


def test_statistics_are_those_of_all_rows_together() -> None:
    normalizer = ObsNormalizer(ONE, "cpu")
    found = batches(50)
    for batch in found:
        normalizer.update({"obs": batch})
    rows = torch.cat(found).double()
    state = normalizer.get_state()
    torch.testing.assert_close(state["mean"].double(), rows.mean(dim=0), rtol=1e-5, atol=1e-5)
    variance = rows.var(dim=0, correction=0)
    torch.testing.assert_close(state["variance"].double(), variance, rtol=1e-5, atol=1e-5)


def test_one_broken_number_does_not_make_all_others_alike() -> None:
    found = batches(400)
    apart, beside = (ObsNormalizer(ONE, "cpu") for _ in range(2))
    for k, batch in enumerate(found):
        apart.update({"obs": batch})
        if k % 20 == 15 and k > 100:  # its row stays in the replay, and is drawn again
            batch = batch.clone()
            batch[3, 1] = 1e18
        beside.update({"obs": batch})
    want, got = apart.arrays(), beside.arrays()
    for name in want:
        np.testing.assert_array_equal(got[name][[0, 2]], want[name][[0, 2]])
    assert got["normalizer.scale"][1] > 0.5 * want["normalizer.scale"][1]


@pytest.mark.parametrize("share", [0.002, 0.02, 1.0])
def test_a_number_that_moves_late_and_rarely_is_no_outlier(share: float) -> None:
    """A contact force, say: it stands still for so long that any of its values is far away."""
    normalizer = ObsNormalizer(NormalizedColumns((("obs", (1,)),)), "cpu")
    rng = np.random.default_rng(0)
    rows = np.zeros((3000, 256, 1), np.float32)
    touched = rng.random(rows.shape) < share
    touched[:300] = False
    rows[touched] = rng.uniform(1.0, 50.0, touched.sum())
    for x_BF in torch.from_numpy(rows):
        normalizer.update({"obs": x_BF})
    deviation = 1.0 / normalizer.arrays()["normalizer.scale"][0]
    assert 0.5 * rows.std() < deviation < 1.01 * rows.std()


def test_states_from_before_outliers_were_counted_are_taken() -> None:
    source, normalizer = (ObsNormalizer(ONE, "cpu") for _ in range(2))
    source.update({"obs": batches(1)[0]})
    state = source.get_state()
    del state["outliers"]
    normalizer.set_state(state)
    torch.testing.assert_close(normalizer.get_state(), source.get_state())


def test_only_the_successors_of_a_batch_leave_the_statistics_alone() -> None:
    normalizer = ObsNormalizer(ONE, "cpu")
    batch = {"obs": torch.randn(4, 3), "next_obs": 100.0 * torch.randn(4, 3)}
    normalizer.observations(batch, "obs")
    before = normalizer.arrays()
    successors = normalizer.observations(batch, "next_obs")["obs"]
    for name, array in normalizer.arrays().items():
        np.testing.assert_array_equal(array, before[name])
    assert successors.abs().max() == 10.0, "clipped"


def test_floats_are_normalised_and_pixels_categories_bits_and_counts_are_not() -> None:
    config = agent_kind("dqn").config(normalize_observations=True)
    assert normalized_columns(config, MIXED).columns == (("obs/arm", (2, 3)), ("obs/speed", ()))
    assert normalized_columns(config, MIXED).size == 7
    assert not normalized_columns(agent_kind("dqn").config(), MIXED).columns


@pytest.mark.filterwarnings("ignore")  # of torch's own exporter
def test_numpy_torch_and_onnx_normalise_bit_for_bit(tmp_path: Path) -> None:
    columns = NormalizedColumns((("obs/a", (4,)), ("obs/b", (2, 3))))
    rng = np.random.default_rng(0)
    arrays = {
        name: np.exp(rng.normal(0, 3, shape)).astype(np.float32)
        for name, shape in columns.shapes.items()
    }
    obs = {
        "obs/a": rng.normal(0, 5, (64, 4)).astype(np.float32),
        "obs/b": rng.normal(0, 5, (64, 2, 3)).astype(np.float32),
    }
    acting = NormalizedNetwork(_Identity(), columns)
    acting.sync_model(ModelInfo(1, arrays))
    in_numpy = acting(obs)
    graph = _OfColumns(NormalizedModule(_Concatenation(), columns, arrays))
    tensors = tuple(torch.from_numpy(column) for column in obs.values())
    in_torch = graph(*tensors).numpy()
    path = str(tmp_path / "graph.onnx")
    torch.onnx.export(graph, tensors, path, input_names=["a", "b"], dynamo=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (in_onnx,) = session.run(None, dict(zip(("a", "b"), obs.values(), strict=True)))
    np.testing.assert_array_equal(in_numpy, in_torch)
    np.testing.assert_array_equal(in_numpy, in_onnx)
    assert (np.abs(in_numpy) == 10.0).any()
    assert (np.abs(in_numpy) < 10.0).any()


class _Identity:
    shapes: dict[str, tuple[int, ...]] = {}  # noqa: RUF012

    def sync_model(self, model: ModelInfo) -> None:
        assert not model.arrays

    def __call__(self, obs: Columns, *inputs: Any) -> Any:
        return np.concatenate([column.reshape(len(column), -1) for column in obs.values()], axis=1)


class _Concatenation(nn.Module):
    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([column.flatten(1) for column in obs.values()], dim=1)


class _OfColumns(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.network({"obs/a": a, "obs/b": b})
        return output


@pytest.mark.parametrize("agent", OF_SAMPLES)
def test_actors_act_on_the_statistics_that_the_learner_has(agent: str) -> None:
    """In other units, with statistics in those units, an observation is the same to a policy."""
    spaces = spaces_for(agent, gym.spaces.Box(-np.inf, np.inf, (3,), np.float32))
    kind = agent_kind(agent)
    config = kind.config(hidden_sizes=(8, 8), normalize_observations=True)
    learner = kind.build_agent(config, spaces, device="cpu", seed=0)
    columns = sampled_transitions(spaces, 32, seed=1)
    batch = {name: torch.from_numpy(column) for name, column in columns.items()}
    for _ in range(3):
        learner.opt(batch)
    policy = kind.build_policy(config, spaces, ranks=np.zeros(2), seed=0)
    model = learner.model_info()
    policy.sync_model(model)
    obs = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    mean, scale = model.arrays["normalizer.mean"], model.arrays["normalizer.scale"]
    np.testing.assert_allclose(mean, batch["obs"].mean(dim=0), rtol=1e-4, atol=1e-5)
    moved = {"normalizer.mean": 8.0 * mean, "normalizer.scale": scale / 8.0}
    other = kind.build_policy(config, spaces, ranks=np.zeros(2), seed=0)
    other.sync_model(ModelInfo(1, {**model.arrays, **moved}))
    expected = policy.act({"obs": obs}, explore=False)
    np.testing.assert_array_equal(other.act({"obs": 8.0 * obs}, explore=False), expected)


def test_a_model_without_statistics_is_refused_by_name() -> None:
    acting = NormalizedNetwork(_Identity(), ONE)
    with pytest.raises(ModelMismatchError, match=r"normalizer\.mean"):
        acting.sync_model(ModelInfo(1, {}))


def test_statistics_go_on_where_they_were_saved() -> None:
    one, other = ObsNormalizer(ONE, "cpu"), ObsNormalizer(ONE, "cpu")
    found = batches(6)
    for batch in found[:3]:
        one.update({"obs": batch})
    other.set_state(one.get_state())
    for batch in found[3:]:
        one.update({"obs": batch})
        other.update({"obs": batch})
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name])
    with pytest.raises(ModelMismatchError, match=r"normalizer\.batches"):
        other.set_state({})


def agent_of(features: int) -> Any:
    spaces = Spaces(
        gym.spaces.Box(-1, 1, (features,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32)
    )
    kind = agent_kind("sac")
    config = kind.config(hidden_sizes=(8, 8))
    agent: Any = kind.build_agent(config, spaces, device="cpu", seed=features)
    columns = sampled_transitions(spaces, 32, 0)
    for _ in range(5):
        agent.opt({name: torch.from_numpy(column) for name, column in columns.items()})
    return agent


@pytest.mark.parametrize("features", [3, 4])
def test_statistics_are_taken_from_another_run_together_or_not_at_all(features: int) -> None:
    source = agent_of(3)
    agent = agent_of(features)
    for _ in range(3):
        source._normalizer.update({"obs": torch.full((2, 3), 7.0)})
    own, theirs = (each.get_state()["normalizer"] for each in (agent, source))
    taken = take_weights(agent.get_state(), weight_parts(source.get_state()))
    expected = theirs if features == 3 else own
    for name, array in taken.state["normalizer"].items():
        counted = name == "outliers"  # each run counts its own
        assert torch.equal(array, own[name] if counted else expected[name]), name
        assert (f"normalizer/{name}" in taken.taken) == (features == 3 and not counted)
    assert any(line.startswith("normalizer/batches: ") for line in taken.left) == (features == 4)


def test_a_models_statistics_are_the_state_that_they_came_from() -> None:
    source = agent_of(3)
    weights, statistics = split_statistics(source.model_info().arrays, source.opt_steps)
    assert weights.keys() == source.get_state()["policy"].keys()
    state = source.get_state()["normalizer"]
    assert state.keys() == {*statistics, "outliers"}  # of which a model knows nothing
    for name, array in statistics.items():
        np.testing.assert_allclose(array, state[name].numpy(), rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("largest", [1e19, 3.4e38])
def test_no_number_makes_the_statistics_something_else_than_numbers(largest: float) -> None:
    """Before they are known, too: the largest float is what some simulators give for "nothing"."""
    normalizer = ObsNormalizer(ONE, "cpu")
    for number, x_BF in enumerate(batches(6)):
        x_BF[:5, 2] = largest if number in (0, 3) else x_BF[:5, 2]
        assert normalizer.observations({"obs": x_BF}, "obs")["obs"].isfinite().all()
    state = normalizer.get_state()
    assert all(state[name].isfinite().all() for name in ("mean", "variance"))


def test_a_single_number_of_half_precision_is_normalised_alike_in_numpy_and_torch() -> None:
    of_numbers = NormalizedColumns((("obs", ()),))
    x = np.array([1000.5, 999.5, 1001.0], np.float16)
    mean = np.array([1000.1], np.float32)
    scale = np.array([3.0], np.float32)
    found = normalize_columns({"obs": x}, of_numbers.split(mean), of_numbers.split(scale))["obs"]
    tensors = of_numbers.split(torch.from_numpy(mean)), of_numbers.split(torch.from_numpy(scale))
    by_torch = normalize_columns({"obs": torch.from_numpy(x)}, *tensors)["obs"]
    assert (found.dtype, by_torch.dtype) == (np.float32, torch.float32)
    np.testing.assert_array_equal(found, by_torch.numpy())
