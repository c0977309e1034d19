"""The newest model in its map: whole, with its digest, and never one that was torn."""

from pathlib import Path

import numpy as np
import pytest

from vedette_protocol.errors import ModelError
from vedette_protocol.model import digest_of, pack_model
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo
from vedette_rl.storage.latest_value import HEADER_BYTES, LatestValueWriter
from vedette_services.run.model_map import ModelMapReader, ModelMapWriter, holds_model

ARRAYS = {
    "scale": np.array(2.0, np.float64),
    "w": np.arange(30_000, dtype=np.float32).reshape(100, 300).T,  # not contiguous
    "odd": np.array([1, 2, 3], np.uint8),
}
SCHEMA = Schema.from_arrays(ARRAYS)


def test_a_trainers_model_comes_out_with_the_digest_of_its_body(tmp_path: Path) -> None:
    ModelMapWriter(tmp_path / "map", SCHEMA).write(3, ModelInfo(7, ARRAYS), 400)
    found = ModelMapReader(tmp_path / "map").read()
    assert found is not None
    assert (found.epoch, found.version, found.env_steps) == (3, 7, 400)
    assert found.schema == SCHEMA
    assert bytes(found.body) == pack_model(7, ARRAYS, SCHEMA)
    assert found.digest == digest_of(found.body)
    for name, array in found.info().arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_values_are_looked_into_unless_a_manager_has(tmp_path: Path) -> None:
    nans = {**ARRAYS, "scale": np.array(np.nan)}
    ModelMapWriter(tmp_path / "trainers", SCHEMA).write(1, ModelInfo(1, nans))
    ours = ModelMapReader(tmp_path / "trainers").read()
    assert ours is not None
    with pytest.raises(ModelError, match="not finite"):
        ours.info()
    body = pack_model(1, nans, SCHEMA)
    ModelMapWriter(tmp_path / "managers", SCHEMA).write_body(1, body)
    looked = ModelMapReader(tmp_path / "managers").read()
    assert looked is not None
    assert looked.digest is None
    assert np.isnan(looked.info().arrays["scale"])


def test_a_model_that_travels_in_16_bits_is_expanded_where_it_arrives(tmp_path: Path) -> None:
    """The trainer's process rounds it, to a map of its own, and not the gateway's loop."""
    writer = ModelMapWriter(tmp_path / "trainers", SCHEMA, tmp_path / "sent")
    writer.write(3, ModelInfo(7, ARRAYS), 400)
    ours, sent = (ModelMapReader(tmp_path / name).read() for name in ("trainers", "sent"))
    assert ours is not None
    assert sent is not None
    np.testing.assert_array_equal(ours.info().arrays["w"], ARRAYS["w"])
    assert (sent.version, sent.env_steps, sent.digest) == (7, 400, digest_of(sent.body))
    assert [column.dtype for column in sent.schema.columns] == ["f8", "f2", "u1"]
    ModelMapWriter(tmp_path / "managers", sent.schema).write_body(3, sent.body)
    come = ModelMapReader(tmp_path / "managers").read()
    assert come is not None
    arrays = come.info().arrays
    assert {name: array.dtype for name, array in arrays.items()} == {
        name: array.dtype for name, array in ARRAYS.items()
    }
    np.testing.assert_allclose(arrays["w"], ARRAYS["w"], rtol=2**-11)


def test_what_is_read_stays_as_it_was_whatever_is_written(tmp_path: Path) -> None:
    writer, reader = ModelMapWriter(tmp_path / "map", SCHEMA), ModelMapReader(tmp_path / "map")
    writer.write(1, ModelInfo(1, ARRAYS))
    first = reader.read()
    assert first is not None
    for version in range(2, 9):
        writer.write(1, ModelInfo(version, {**ARRAYS, "w": ARRAYS["w"] + version}))
    np.testing.assert_array_equal(first.info().arrays["w"], ARRAYS["w"])


def test_a_model_that_was_left_is_known_from_one_that_a_power_cut_tore(tmp_path: Path) -> None:
    path = tmp_path / "map"
    writer = ModelMapWriter(path, SCHEMA)
    assert not holds_model(path)
    writer.write(1, ModelInfo(1, ARRAYS))
    assert holds_model(path)
    content = bytearray(path.read_bytes())
    slot = (len(content) - HEADER_BYTES) // 3  # the first value is in the second of three
    content[HEADER_BYTES + 2 * slot - 1000] ^= 1
    path.write_bytes(content)
    assert not holds_model(path)


def test_a_map_of_another_form_holds_no_model(tmp_path: Path) -> None:
    other = LatestValueWriter(tmp_path / "map", max_bytes=1000)
    other.write(bytes(12), b'[["w", "f4", [3], null, null]]', bytes(20))
    other.close()
    assert not holds_model(tmp_path / "map")
    short = LatestValueWriter(tmp_path / "short", max_bytes=10)
    short.write(b"short")
    short.close()
    assert not holds_model(tmp_path / "short")
