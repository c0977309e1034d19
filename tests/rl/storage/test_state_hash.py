"""The hash of a state tells any bit, and nothing of how it came about."""

from typing import Any

import numpy as np
import pytest
import torch

from vedette_rl.storage.state_file import read_state, write_state
from vedette_rl.storage.state_hash import hash_state


def state() -> dict[str, Any]:
    return {
        "weights": {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)},
        "masses": np.arange(5.0),
        "empty": {"none": torch.zeros(0), "dict": {}},
        "steps": 7,
        "rng": {"state": 2**100, "kind": "PCG64"},
        "beta": 0.1,
        "last": None,
        "flag": True,
    }


def test_order_of_names_and_kind_of_memory_do_not_matter() -> None:
    turned = dict(reversed(state().items()))
    turned["weights"]["a"] = np.arange(6, dtype=np.float32).reshape(2, 3)
    turned["masses"] = np.arange(10.0)[::2] / 2
    assert hash_state(turned) == hash_state(state())


def test_a_state_that_was_on_the_disk_has_the_same_hash(tmp_path: Any) -> None:
    write_state(tmp_path / "1", state(), {})
    again, _ = read_state(tmp_path / "1")
    assert hash_state(again) == hash_state(state())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("weights/a", torch.arange(6.0).reshape(3, 2)),
        ("weights/a", torch.arange(6).reshape(2, 3)),
        ("weights/a", torch.tensor([[0.0, 1, 2], [3, 4, np.nextafter(np.float32(5), 9)]])),
        ("weights/b", torch.full((3,), 1.0078125, dtype=torch.bfloat16)),
        ("masses", np.array([0.0, 1, 2, 3, np.nextafter(4.0, 5)])),
        ("masses", np.array([-0.0, 1, 2, 3, 4])),
        ("empty/none", torch.zeros(0, 2)),
        ("steps", 8),
        ("steps", 7.0),
        ("rng/state", 2**100 + 1),
        ("beta", 0.1 + 2**-56),
        ("last", "None"),
        ("flag", 1),
        ("more", 0),
    ],
)
def test_any_difference_is_told(path: str, value: Any) -> None:
    changed = state()
    *parts, name = path.split("/")
    inner = changed
    for part in parts:
        inner = inner[part]
    inner[name] = value
    assert hash_state(changed) != hash_state(state())
