"""Buffers of other libraries and tables: named as what they are, never unpickled."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vedette_rl.datasets.column_files import read_column_file
from vedette_rl.errors import DataSetError

ROWS = {"obs": np.zeros((4, 2), np.float32), "reward": np.ones(4, np.float32)}


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return Path.touch, (self.folder / "sprung",)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("buffer.pkl", "it is a pickle, which runs what is in it"),
        ("old.pkl", "it is a pickle"),
        ("rows.pt", r"a file of torch\.save, a pickle"),
        ("rows.csv", "it is CSV, which is not read"),
        ("rows.json", "it is JSON"),
        ("rows.parquet", "it is Parquet"),
        ("rows.npz.gz", "it is gzip"),
    ],
)
def test_another_format_is_named_with_what_to_write(name: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / name
    trap = {**ROWS, "trap": Trap(tmp_path)}
    if name == "rows.pt":
        torch.save(trap, path)
    else:
        contents = {
            "buffer.pkl": pickle.dumps(trap),
            "old.pkl": pickle.dumps(trap, protocol=2),
            "rows.csv": b"obs0,obs1,reward\n0,0,1\n",
            "rows.json": json.dumps({"reward": [1, 1]}).encode(),
            "rows.parquet": b"PAR1" + bytes(100),
            "rows.npz.gz": gzip.compress(b"numbers"),
        }
        path.write_bytes(contents[name])
    with pytest.raises(DataSetError, match=named) as refused:
        read_column_file(path)
    assert "numpy.savez(FILE, obs=..." in str(refused.value)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_a_whole_npz_is_read_whatever_its_name_is(suffix: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", **ROWS)
    path = (tmp_path / "rows.npz").rename(tmp_path / f"rows{suffix}")
    assert sorted(read_column_file(path)) == ["obs", "reward"]
