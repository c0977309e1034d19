"""Checkpoints: what is read is what was written, whole or not at all."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from vedette_rl.checkpoint import STATE_FILE, Checkpoints, read_state, write_state
from vedette_rl.errors import CheckpointError


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


@settings(deadline=None, max_examples=80)
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
        "import sys; from vedette_rl.checkpoint import read_state, write_state;"
        f"s, m = read_state({str(tmp_path / 's')!r}); write_state({str(tmp_path / 't')!r}, s, m);"
        "print('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_the_newest_few_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    assert checkpoints.latest() is None
    assert checkpoints.load_latest() is None
    for opt_steps in (5, 100, 20, 1000):
        assert checkpoints.save(opt_steps, {"n": opt_steps}, {}).name == str(opt_steps)
    assert [path.name for path in checkpoints.list()] == ["100", "1000"]
    loaded = checkpoints.load_latest()
    assert loaded is not None
    assert (loaded.path.name, loaded.state, loaded.skipped) == ("1000", {"n": 1000}, ())


def test_a_checkpoint_of_the_same_step_replaces_the_first(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(5, {"n": 1}, {"try": 1})
    checkpoints.save(5, {"n": 2}, {"try": 2})
    assert read_state(tmp_path / "5") == ({"n": 2}, {"try": 2})
    assert json.loads((tmp_path / "5" / "meta.json").read_text()) == {"try": 2}


def test_a_torn_checkpoint_is_passed_over_and_told_of(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for opt_steps in (1, 2, 3):
        checkpoints.save(opt_steps, {"x": np.arange(100.0)}, {})
    file = tmp_path / "3" / STATE_FILE
    os.truncate(file, file.stat().st_size - 50)
    (tmp_path / "2" / STATE_FILE).write_bytes(b"\x80\x04not a state at all")
    loaded = checkpoints.load_latest()
    assert loaded is not None
    assert loaded.path.name == "1"
    assert len(loaded.skipped) == 2
    assert all("torn or foreign" in told for told in loaded.skipped)
    (tmp_path / "1" / STATE_FILE).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"checkpoint .*/3/.*torn.*no other can be read"):
        checkpoints.load_latest()


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.ones(3)}, tmp_path / STATE_FILE)
    with pytest.raises(CheckpointError, match="its format is None"):
        read_state(tmp_path)


def test_what_a_killed_writer_left_is_no_checkpoint_and_is_cleared(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    (tmp_path / ".writing-7-99").mkdir()
    (tmp_path / ".writing-7-99" / STATE_FILE).write_bytes(b"half")
    (tmp_path / "8").mkdir()
    assert checkpoints.latest() is None
    checkpoints.save(9, {"n": 9}, {})
    assert {path.name for path in tmp_path.iterdir()} == {"8", "9"}
    (tmp_path / "9" / ".writing-state-99").write_bytes(b"half")
    checkpoints.save(9, {"n": 9}, {})
    assert {path.name for path in (tmp_path / "9").iterdir()} == {STATE_FILE, "meta.json"}


def test_what_a_killed_writer_of_our_own_number_left_is_in_nobodys_way(tmp_path: Path) -> None:
    aside = tmp_path / f".writing-7-{os.getpid()}"
    aside.mkdir()
    (aside / STATE_FILE).write_bytes(b"half")
    Checkpoints(tmp_path, keep=3).save(7, {"n": 7}, {})
    assert {path.name for path in tmp_path.iterdir()} == {"7"}
    assert read_state(tmp_path / "7")[0] == {"n": 7}


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


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_leaves_what_was_there_and_says_so_in_one_line(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(5, {"x": np.zeros(10)}, {"n": 1})
    for opt_steps in (5, 6):
        with files_up_to(20_000), pytest.raises(CheckpointError, match="File too large") as caught:
            checkpoints.save(opt_steps, {"x": np.zeros(10_000)}, {})
        assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"5"}
    assert {path.name for path in (tmp_path / "5").iterdir()} == {STATE_FILE, "meta.json"}
    assert read_state(tmp_path / "5")[1] == {"n": 1}


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot write checkpoint .*(Not a dir|File exists)"):
        Checkpoints(tmp_path / "file" / "inside", keep=1).save(1, {}, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into read-only directories")
def test_a_read_only_directory_is_said_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CheckpointError, match="Permission denied"):
        Checkpoints(tmp_path, keep=1).save(1, {}, {})


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Checkpoints(tmp_path, keep=0)
