"""States on disk: what is read is what was written."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from vedette_rl.errors import CheckpointError
from vedette_rl.storage.state_file import STATE_FILE, read_state, write_state


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        nan_safe = a.is_floating_point()
        return a.dtype == b.dtype and bool(torch.allclose(a, b, 0, 0, nan_safe) or not a.numel())
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def test_a_training_state_comes_back_as_it_was(tmp_path: Path) -> None:
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "network": dict(network.state_dict()),
        "optimizer": optimizer.state_dict(),
        "numpy_rng": np.random.default_rng(3).bit_generator.state,
        "mersenne": np.random.RandomState(3).get_state(legacy=False),
        "torch_rng": torch.get_rng_state(),
        "opt_steps": 2**70,
        "epsilon": float("inf"),
        "nothing": None,
        "flags": [True, False, (1, 2.5, "x")],
        "half": torch.arange(3, dtype=torch.bfloat16),
        "scalar": torch.tensor(1.5),
        "half a scalar": torch.tensor(1.5, dtype=torch.bfloat16),
        "empty": torch.zeros(0, 4),
        "strided": torch.arange(6.0).reshape(2, 3).T,
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }
    write_state(tmp_path / "5", state, {"opt_steps": 5})
    found, meta = read_state(tmp_path / "5")
    assert meta == {"opt_steps": 5}
    assert same(found, state)
    torch.optim.Adam(network.parameters()).load_state_dict(found["optimizer"])
    generator = np.random.default_rng()
    generator.bit_generator.state = found["numpy_rng"]
    assert generator.random() == np.random.default_rng(3).random()


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([np.arange(3), np.zeros((0, 2), np.float32), np.array(True)])
)
keys = st.text() | st.integers() | st.sampled_from(["$array", "$dict", "__metadata__", "a/b"])
states = st.recursive(
    leaves,
    lambda inner: st.dictionaries(keys, inner) | st.lists(inner) | st.tuples(inner, inner),
    max_leaves=12,
)


@settings(max_examples=40)
@given(st.dictionaries(keys, states))
def test_any_state_comes_back_as_it_was(tmp_path_factory: Any, state: dict[Any, Any]) -> None:
    directory = tmp_path_factory.mktemp("state")
    write_state(directory, state, {})
    assert same(read_state(directory)[0], state)


def test_tensors_can_be_read_with_safetensors_alone_under_their_paths(tmp_path: Path) -> None:
    write_state(tmp_path / "s", {"arrays": {"q.0.weight": np.ones((2, 3), np.float32)}}, {})
    found = load_file(tmp_path / "s" / STATE_FILE)
    assert found["arrays/q.0.weight"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_what_is_not_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"/agent/net is a Linear, which is not saved"):
        write_state(tmp_path / "s", {"agent": {"net": torch.nn.Linear(1, 1)}}, {})
    assert not (tmp_path / "s").exists()


def test_numbers_without_tensors_load_no_torch(tmp_path: Path) -> None:
    write_state(tmp_path / "s", {"a": np.ones(3), "b": {"c": 1}}, {})
    code = (
        "import sys; from vedette_rl.storage.state_file import read_state, write_state;"
        f"s, m = read_state({str(tmp_path / 's')!r}); write_state({str(tmp_path / 't')!r}, s, m);"
        "print('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.ones(3)}, tmp_path / STATE_FILE)
    with pytest.raises(CheckpointError, match="its format is None"):
        read_state(tmp_path)


def test_more_tensors_than_one_write_takes_come_back_as_they_were(tmp_path: Path) -> None:
    state = {str(n): np.full(n % 3, n) for n in range(2500)}
    write_state(tmp_path / "s", state, {})
    assert same(read_state(tmp_path / "s")[0], state)


def test_what_a_short_write_left_is_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.writev

    def short(descriptor: int, parts: list[memoryview]) -> int:
        return whole(descriptor, [parts[0][:5]])

    monkeypatch.setattr(os, "writev", short)
    state = {"a": np.arange(7.0), "none": np.zeros(0), "b": torch.ones(3, dtype=torch.bfloat16)}
    write_state(tmp_path / "s", state, {"n": 1})
    assert same(read_state(tmp_path / "s")[0], state)


@pytest.mark.parametrize("place", ["data", "opt_steps"])
def test_a_flipped_bit_is_noticed(tmp_path: Path, place: str) -> None:
    write_state(tmp_path, {"x": np.arange(100.0), "opt_steps": 7001}, {})
    file = tmp_path / STATE_FILE
    whole = bytearray(file.read_bytes())
    whole[-50 if place == "data" else whole.index(b"7001") + 3] ^= 2
    file.write_bytes(whole)
    with pytest.raises(CheckpointError, match="it is damaged: its bytes are not what was written"):
        read_state(tmp_path)
