"""An ONNX model acts as the policy in torch that it was traced from."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from exported_policies import CASES, observations, original, policy_file

from vedette_rl.agents.registry import agent_kind
from vedette_rl.errors import ExportError
from vedette_rl.exported import onnx_file
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


def test_without_the_package_it_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "PACKAGES", ("no_such_package",))
    with pytest.raises(ExportError, match=r"no_such_package .*pip install 'vedette\[onnx\]'"):
        write_onnx(tmp_path / "policy.onnx", policy_file("dqn"))
