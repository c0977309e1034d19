"""An ONNX model acts as the policy in torch that it was traced from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from exported_policies import CASES, VECTOR, observations, original, policy_file
from numpy.typing import NDArray

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import ModelInfo
from vedette_rl.envs.spaces import Spaces, agent_spaces
from vedette_rl.errors import ExportError
from vedette_rl.exported import PolicyFile, onnx_file
from vedette_rl.exported.onnx_file import write_onnx

QUICK = ("sac", "dqn-image-dueling")  # torch traces for seconds; the rest is slow
SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in CASES if case not in QUICK]


@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [*QUICK, *SLOW])
def test_onnxruntime_acts_as_torch_does(case: str, tmp_path: Path) -> None:
    found = policy_file(case)
    path = tmp_path / "policy.onnx"
    write_onnx(path, found)
    assert [file.name for file in tmp_path.iterdir()] == ["policy.onnx"]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["vedette"] == found.header()
    network = agent_kind(found.config.name).build_graph(found.config, found.spaces, found.model)
    assert [output.name for output in session.get_outputs()] == list(network.outputs)
    for rows in (1, 33):
        obs = observations(found.spaces, rows)
        outputs = session.run(None, obs)
        with torch.inference_mode():
            expected = network(*(torch.from_numpy(column) for column in obs.values()))
        for got, wanted in zip(outputs, expected, strict=True):
            assert got.dtype == wanted.numpy().dtype
            np.testing.assert_allclose(got, wanted.numpy(), atol=1e-4)
        np.testing.assert_allclose(outputs[0], original(found).act(obs, explore=False), atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_the_network_that_is_traced_acts_as_the_policy_does(case: str) -> None:
    found = policy_file(case)
    network = agent_kind(found.config.name).build_graph(found.config, found.spaces, found.model)
    obs = observations(found.spaces, 50)
    with torch.inference_mode():
        action, *_ = network(*(torch.from_numpy(column) for column in obs.values()))
    np.testing.assert_allclose(action, original(found).act(obs, explore=False), atol=1e-5)


def test_its_inputs_have_the_dtypes_of_their_spaces_but_float32_for_float64() -> None:
    parts = {
        "wide": gym.spaces.Box(-1.0, 1.0, (3,), np.float64),
        "narrow": gym.spaces.Box(-1.0, 1.0, (3,), np.float32),
        "bytes": gym.spaces.Box(0, 255, (3,), np.uint8),
    }
    spaces = Spaces(gym.spaces.Dict(parts), gym.spaces.Discrete(2))
    kind = agent_kind("dqn")
    config = kind.config(hidden_sizes=(8,))
    model = kind.build_agent(config, spaces, device="cpu", seed=0).model_info()
    inputs = kind.build_graph(config, spaces, model).example_inputs(2)
    found = {name: tensor.dtype for name, tensor in inputs.items()}
    wanted = {"bytes": torch.uint8, "narrow": torch.float32, "wide": torch.float32}
    assert found == {f"obs/{name}": dtype for name, dtype in wanted.items()}


MEMORIES: dict[str, gym.Space[Any]] = {
    "dqn": gym.spaces.Discrete(5, start=2),
    "iqn": gym.spaces.Discrete(5),
    "sac": gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10])),
    "td3": gym.spaces.Box(-1, 1, (3,), np.float32),
    "appo": gym.spaces.MultiDiscrete([2, 4, 3]),
}


def file_with_memory(agent: str) -> PolicyFile:
    """A policy whose actions depend on what it remembers."""
    kind = agent_kind(agent)
    config = kind.config(
        memory="gru", memory_size=8, hidden_sizes=(16, 16), normalize_observations=True
    )
    spaces = Spaces(VECTOR, MEMORIES[agent])
    inside = agent_spaces(spaces.observation, spaces.action)
    model = kind.build_agent(config, inside, device="cpu", seed=0).model_info()
    rng = np.random.default_rng(0)
    steep = {
        name: np.abs(array + rng.normal(size=array.shape)).astype(np.float32)
        if name.startswith("normalizer")
        else (array + rng.normal(size=array.shape)).astype(np.float32)
        for name, array in model.arrays.items()
    }
    return PolicyFile(config, spaces, ModelInfo(1, steep))


def steps_of_episodes() -> Iterator[tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]]:
    """Observations of three environments, and where their episodes begin."""
    rng = np.random.default_rng(1)
    for step in range(50):
        begins = np.array([step == 0, step in (0, 20), step in (0, 7, 31)])
        yield {"obs": rng.uniform(-1, 1, (3, 4)).astype(np.float32)}, begins


@pytest.mark.parametrize("agent", MEMORIES)
def test_the_network_with_memory_that_is_traced_acts_as_the_policy_does(agent: str) -> None:
    found = file_with_memory(agent)
    policy = found.make_policy()
    kind = agent_kind(agent)
    assert kind.build_graph is not None
    graph = kind.build_graph(found.config, found.agent_spaces, found.model)
    assert list(graph.example_inputs(2)) == ["obs", "memory"]
    memory = torch.zeros(3, 8)
    for obs, begins in steps_of_episodes():
        memory[torch.from_numpy(begins)] = 0.0
        with torch.no_grad():
            action, *_, memory = graph(torch.from_numpy(obs["obs"]), memory)
        expected = policy.act(obs, explore=False, begins=begins)
        np.testing.assert_allclose(action, expected, atol=1e-4)


@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "agent",
    ["dqn", *(pytest.param(a, marks=pytest.mark.slow) for a in ("iqn", "sac", "td3", "appo"))],
)
def test_onnxruntime_remembers_as_the_policy_does(agent: str, tmp_path: Path) -> None:
    found = file_with_memory(agent)
    path = tmp_path / "policy.onnx"
    write_onnx(path, found)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {each.name: each.shape[1:] for each in session.get_inputs()}
    assert given == {"obs": [4], "memory": [8]}
    outputs = [output.name for output in session.get_outputs()]
    assert (outputs[0], outputs[-1]) == ("action", "next_memory")
    policy = found.make_environment_policy()
    memory = np.zeros((3, 8), np.float32)
    for obs, begins in steps_of_episodes():
        memory[begins] = 0.0
        action, *_, after = session.run(None, {**obs, "memory": memory})
        memory = after.copy()
        expected = policy.act(obs, explore=False, begins=begins)
        np.testing.assert_allclose(action, expected, atol=1e-4)


def test_without_the_package_it_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "PACKAGES", ("no_such_package",))
    with pytest.raises(ExportError, match=r"no_such_package .*pip install 'vedette\[onnx\]'"):
        write_onnx(tmp_path / "policy.onnx", policy_file("dqn"))
