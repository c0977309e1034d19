"""Schemas, payloads and values."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import SCHEMA, example_columns

from vedette_protocol.column import Column, Columns
from vedette_protocol.errors import SchemaError
from vedette_protocol.schema import Schema, spec_difference

KINDS = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]


def test_a_payload_lies_column_after_column_each_on_eight_bytes() -> None:
    schema = Schema((Column("a", "u1"), Column("b", "f4", (2,))))
    columns = {
        "b": np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        "a": np.array([7, 8, 9], np.uint8),
    }
    payload = schema.pack(columns, 3)
    assert payload[:8] == bytes([7, 8, 9, 0, 0, 0, 0, 0])
    assert payload[8:] == columns["b"].tobytes()
    assert len(payload) == schema.payload_bytes(3) == 32


columns_of_any_kind = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.integers(1, 3), max_size=3)),
    min_size=1,
    max_size=6,
)


@given(columns_of_any_kind, st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_what_is_packed_is_viewed(kinds: list[tuple[str, list[int]]], rows: int, seed: int) -> None:
    schema = Schema(
        tuple(Column(f"c{at}", kind, tuple(shape)) for at, (kind, shape) in enumerate(kinds))
    )
    rng = np.random.default_rng(seed)
    columns: Columns = {
        c.name: rng.integers(0, 2, (rows, *c.shape)).astype(c.numpy_dtype) for c in schema.columns
    }
    payload = schema.pack(columns, rows)
    views = schema.views(payload, rows)
    schema.check_values(views)
    assert list(views) == [column.name for column in schema.columns]
    for name, column in columns.items():
        assert views[name].dtype == column.dtype
        assert np.array_equal(views[name], column)
        assert views[name].ctypes.data % column.dtype.itemsize == 0
        assert not views[name].flags.writeable
    assert Schema.from_dtype(schema.row_dtype) == schema
    assert Schema.from_wire(schema.to_wire()) == schema


def test_only_the_first_rows_are_packed() -> None:
    payload = SCHEMA.pack(example_columns(9), 3)
    assert SCHEMA.views(payload, 3)["action"].tolist() == [0, 1, 0]


def test_views_are_views() -> None:
    payload = SCHEMA.pack(example_columns(3), 3)
    obs = SCHEMA.views(payload, 3)["obs"]
    payload[0:4] = np.float32(42).tobytes()
    assert obs[0, 0] == 42


@pytest.mark.parametrize("rows", [2, 4, 2**20])
def test_a_payload_of_another_length_is_refused(rows: int) -> None:
    with pytest.raises(SchemaError, match=f"a payload of {rows} rows has"):
        SCHEMA.views(SCHEMA.pack(example_columns(3), 3), rows)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("obs", np.zeros((3, 4), np.float64)),
        ("obs", np.zeros((3, 5), np.float32)),
        ("obs", np.zeros((2, 4), np.float32)),
        ("obs", np.zeros((3, 4), ">f4")),
        ("action", np.zeros((3, 1), np.int64)),
    ],
)
def test_a_column_that_does_not_fit_is_not_packed(name: str, column: np.ndarray) -> None:
    with pytest.raises(SchemaError, match=f"column '{name}': expected 3 rows"):
        SCHEMA.pack({**example_columns(3), name: column}, 3)


def test_a_missing_or_unknown_column_is_not_packed() -> None:
    columns = example_columns(3)
    with pytest.raises(SchemaError, match="expected columns"):
        SCHEMA.pack({**columns, "more": columns["obs"]}, 3)
    del columns["reward"]
    with pytest.raises(SchemaError, match="expected columns"):
        SCHEMA.pack(columns, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["obs", "reward", "next_obs"])
def test_a_float_that_is_not_finite_is_refused(name: str, value: float) -> None:
    columns = example_columns(3)
    columns[name].flat[-1] = value
    with pytest.raises(SchemaError, match=f"column '{name}' has a value that is not finite"):
        SCHEMA.check_values(columns)


def test_infinities_that_cancel_are_refused_and_large_values_that_overflow_a_sum_are_not() -> None:
    columns = example_columns(3)
    columns["obs"][0, :2] = (np.inf, -np.inf)
    with pytest.raises(SchemaError):
        SCHEMA.check_values(columns)
    columns["obs"][:] = np.finfo(np.float32).max
    SCHEMA.check_values(columns)


def test_a_boolean_byte_of_two_is_refused() -> None:
    payload = SCHEMA.pack(example_columns(3), 3)
    flags = SCHEMA.views(payload, 3)["terminated"]
    place = flags.ctypes.data - np.frombuffer(payload, np.uint8).ctypes.data
    payload[place + 1] = 2
    with pytest.raises(SchemaError, match="'terminated' has a boolean that is neither 0 nor 1"):
        SCHEMA.check_values(SCHEMA.views(payload, 3))


@pytest.mark.parametrize(("value", "why"), [(2, "2 is above 1"), (-1, "-1 is below 0")])
def test_an_action_out_of_range_is_refused(value: int, why: str) -> None:
    columns = example_columns(3)
    columns["action"][1] = value
    with pytest.raises(SchemaError, match=f"column 'action': {why}"):
        SCHEMA.check_values(columns)


def test_the_hash_is_of_the_canonical_form() -> None:
    schema = Schema((Column("obs", "f4", (3, 2)), Column("action", "i8", (), 0, 1)))
    canonical = "obs\tf4\t3,2\t\t\naction\ti8\t\t0\t1\n"
    assert schema.hash == hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        Column("a", "f4", (2,)),
        Column("b", "i8", (2,)),
        Column("b", "f4", (2, 1)),
        Column("b", "f4"),
    ],
)
def test_any_difference_gives_another_hash(other: Column) -> None:
    assert Schema((other,)).hash != Schema((Column("b", "f4", (2,)),)).hash


def test_bounds_come_from_the_space_and_are_part_of_the_hash() -> None:
    dtype = np.dtype([("action", "i8")])
    bounded = Schema.from_dtype(dtype, {"action": (0, 3)})
    assert bounded.columns == (Column("action", "i8", (), 0, 3),)
    assert bounded.hash != Schema.from_dtype(dtype).hash


@pytest.mark.parametrize(
    "dtype",
    [np.dtype("f4"), np.dtype([("a", "O")]), np.dtype([("a", "U3")]), np.dtype([("a", "c8")])],
)
def test_a_dtype_that_cannot_travel_makes_no_schema(dtype: np.dtype) -> None:
    with pytest.raises(SchemaError):
        Schema.from_dtype(dtype)


def test_a_row_that_numpy_cannot_hold_has_no_row_dtype() -> None:
    with pytest.raises(SchemaError, match="numpy cannot hold"):
        _ = Schema((Column("a", "u1", (2**31,)),)).row_dtype


@pytest.mark.parametrize(
    ("got", "sentence"),
    [
        ([("a", "f4", (2,)), ("b", "i8", ())], ""),
        ([("a", "f4", (2,))], "'b' is missing"),
        ([("a", "f4", (3,)), ("b", "i8", ())], "'a' is f4[3], expected f4[2]"),
        ([("a", "f8", (2,)), ("b", "i8", ())], "'a' is f8[2], expected f4[2]"),
        ([("a", "f4", (2,)), ("b", "i8", ()), ("c", "?", ())], "'c' is not expected"),
        ([("b", "i8", ()), ("a", "f4", (2,))], "the columns are in another order"),
    ],
)
def test_the_first_difference_of_two_specs_is_named(
    got: list[tuple[str, str, tuple[int, ...]]], sentence: str
) -> None:
    expected = Schema((Column("a", "f4", (2,)), Column("b", "i8")))
    assert spec_difference(expected, Schema(tuple(Column(*c) for c in got))) == sentence
