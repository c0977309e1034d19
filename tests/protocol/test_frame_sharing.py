"""Schemas whose rows share a column."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import EXAMPLES, RUN, SHARING_SCHEMA, sharing_columns

from vedette_protocol.codec import decode_control, encode
from vedette_protocol.column import Column
from vedette_protocol.errors import ProtocolError, SchemaError
from vedette_protocol.schema import Schema, spec_difference

PLACE = Column("p", "u2", (2,), role="place")
SHARED = Column("s", "f4", (3,), role="shared")
SCHEMA = Schema((PLACE, SHARED))
MORE = Column("more", "u1", (5,), role="shared")
PARTS = Schema((Column("p", "u4", (), role="place"), SHARED, MORE))


@given(st.integers(1, 12), st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_what_is_packed_with_its_entries_is_viewed(rows: int, entries: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = min(max(entries, 1), rows * SCHEMA.sharing.places_per_row)  # type: ignore[union-attr]
    columns = {
        "p": rng.integers(0, entries, (rows, 2), dtype=np.uint16),
        "s": rng.random((entries, 3), np.float32),
    }
    payload = SCHEMA.pack(columns, rows)
    assert len(payload) == SCHEMA.payload_bytes(rows, entries)
    views = SCHEMA.views(payload, rows)
    SCHEMA.check_values(views)
    assert list(views) == ["p", "s"]
    for name, column in columns.items():
        assert np.array_equal(views[name], column)
        assert not views[name].flags.writeable


@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_entries_of_several_columns_are_packed_and_viewed(
    rows: int, entries: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    entries = min(max(entries, 1), rows)
    columns = {
        "p": rng.integers(0, entries, rows, dtype=np.uint32),
        "s": rng.random((entries, 3), np.float32),
        "more": rng.integers(0, 256, (entries, 5), dtype=np.uint8),
    }
    payload = PARTS.pack(columns, rows)
    padded = -(-4 * rows // 8) * 8 + 8 + -(-12 * entries // 8) * 8 + -(-5 * entries // 8) * 8
    assert len(payload) == PARTS.payload_bytes(rows, entries) == padded
    views = PARTS.views(payload, rows)
    PARTS.check_values(views)
    assert list(views) == ["p", "s", "more"]
    for name, column in columns.items():
        assert np.array_equal(views[name], column)
    for room in range(len(payload) - 9, len(payload) + 9):
        fit = PARTS.entries_max(rows, room)
        assert fit == rows or PARTS.payload_bytes(rows, fit + 1) > room
        assert not fit or PARTS.payload_bytes(rows, fit) <= room


def test_shared_columns_have_as_many_entries() -> None:
    columns = {
        "p": np.zeros(2, np.uint32),
        "s": np.zeros((2, 3), np.float32),
        "more": np.zeros((1, 5), np.uint8),
    }
    with pytest.raises(SchemaError, match=r"'more': expected 2 entries of uint8.*got 1"):
        PARTS.pack(columns, 2)
    assert Schema.from_wire(PARTS.to_wire()) == PARTS


@pytest.mark.parametrize("change", [-96, -8, -1, 1, 8])
def test_a_payload_of_another_length_than_its_entries_say_is_refused(change: int) -> None:
    payload = bytes(SHARING_SCHEMA.pack(sharing_columns(3), 3))
    payload = payload[:change] if change < 0 else payload + bytes(change)
    with pytest.raises(SchemaError, match=r"^a payload of 3 rows"):
        SHARING_SCHEMA.views(payload, 3)


@pytest.mark.parametrize("entries", [25, 2**32, 2**64 - 1])
def test_more_entries_than_places_are_refused_whatever_the_payload_has(entries: int) -> None:
    payload = SHARING_SCHEMA.pack(sharing_columns(3), 3)
    payload[112:120] = entries.to_bytes(8, "little")
    with pytest.raises(SchemaError, match=f"'frames': {entries} entries, but 3 rows have 24"):
        SHARING_SCHEMA.views(payload, 3)


def test_values_of_entries_and_places_are_checked() -> None:
    columns = {"p": np.array([[0, 1]], np.uint16), "s": np.zeros((2, 3), np.float32)}
    SCHEMA.check_values(columns)
    with pytest.raises(SchemaError, match="'p': place 2, but there are 2 entries"):
        SCHEMA.check_values({**columns, "p": np.array([[2, 1]], np.uint16)})
    with pytest.raises(SchemaError, match="'s' has a value that is not finite"):
        SCHEMA.check_values({**columns, "s": np.full((2, 3), np.inf, np.float32)})


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ((PLACE,), "'p' has places, but no column is shared"),
        ((SHARED,), "no column has places for the shared column"),
        ((SHARED, PLACE), "only the last columns"),
        ((PLACE, SHARED, replace(SHARED, name="t", role="row"), MORE), "only the last columns"),
    ],
)
def test_places_and_last_shared_columns_need_each_other(
    columns: tuple[Column, ...], says: str
) -> None:
    with pytest.raises(SchemaError, match=says):
        Schema(columns)


@pytest.mark.parametrize(
    ("dtype", "high", "role"), [("i4", None, "place"), ("u4", 7, "place"), ("u4", None, "column")]
)
def test_places_are_unsigned_and_unbounded_and_roles_are_known(
    dtype: str, high: int | None, role: str
) -> None:
    with pytest.raises(SchemaError):
        Column("p", dtype, (), None, high, role)


@pytest.mark.parametrize("role", ["row", "", 3, None, ["place"]])
def test_a_role_that_is_none_does_not_travel(role: object) -> None:
    with pytest.raises(SchemaError):
        Schema.from_wire([["p", "u2", [2], None, None, role]])


def test_roles_are_in_the_hash_and_in_what_differs() -> None:
    text = "p\tu2\t2\t\t\tplace\ns\tf4\t3\t\t\tshared\n"
    assert SCHEMA.hash == hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    assert Schema.from_wire(SCHEMA.to_wire()) == SCHEMA
    plain = Schema((replace(PLACE, role="row"), replace(SHARED, role="row")))
    assert plain.hash != SCHEMA.hash
    assert "(place)" in spec_difference(SCHEMA, plain) + spec_difference(plain, SCHEMA)


def test_a_batch_has_no_more_entries_than_fit() -> None:
    assert Schema((Column("a", "u1"),)).entries_max(100, 1 << 20) == 0
    assert SHARING_SCHEMA.entries_max(100, 1 << 20) == 800
    for bytes_max in range(5000, 5100):
        entries = SHARING_SCHEMA.entries_max(100, bytes_max)
        assert SHARING_SCHEMA.payload_bytes(100, entries) <= bytes_max
        assert SHARING_SCHEMA.payload_bytes(100, entries + 1) > bytes_max - 8


def test_a_model_has_no_shared_column() -> None:
    assert decode_control(encode(EXAMPLES["run-of-frames"])).schema == SHARING_SCHEMA  # type: ignore[union-attr]
    with pytest.raises(ProtocolError, match="a model has no shared column"):
        decode_control(encode(replace(RUN, model=SHARING_SCHEMA)))
