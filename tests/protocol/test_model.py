"""Models: packed, cut, put together."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import MODEL

from vedette_protocol.codec import decode_model, encode
from vedette_protocol.column import Column, Columns
from vedette_protocol.errors import ModelError
from vedette_protocol.limits import CHUNK_MAX_BYTES, CHUNK_MIN_BYTES, U64_MAX
from vedette_protocol.messages import ModelChunk
from vedette_protocol.model import (
    CompleteModel,
    ModelAssembler,
    body_bytes,
    digest_of,
    expand_arrays,
    in_float16,
    pack_model,
    round_arrays,
    split_into_chunks,
    unpack_model,
)
from vedette_protocol.schema import Schema

LARGE = Schema((Column("w", "f4", (100, 1000)), Column("step", "i8")))  # 7 chunks of 64 KiB


def arrays(value: float = 1.0) -> Columns:
    return {"w": np.full((100, 1000), value, np.float32), "step": np.array(5)}


def cut(
    version: int, *, epoch: int = 1, run_id: str = "run", value: float = 1.0
) -> list[ModelChunk]:
    body = pack_model(version, arrays(value), LARGE)
    return list(split_into_chunks(run_id, epoch, LARGE.hash, body, chunk_bytes=CHUNK_MIN_BYTES))


def offer_all(assembler: ModelAssembler, pieces: list[ModelChunk]) -> list[CompleteModel]:
    return [model for piece in pieces if (model := assembler.add_chunk(piece)) is not None]


def test_a_model_comes_out_as_it_went_in() -> None:
    weights = {"0.weight": np.arange(8, dtype=np.float32).reshape(2, 4), "0.bias": np.ones(2, "f4")}
    body = pack_model(7, weights, MODEL)
    assert len(body) == body_bytes(MODEL)
    version, got = unpack_model(body, MODEL)
    assert version == 7
    assert list(got) == list(weights)
    for name, array in weights.items():
        assert np.array_equal(got[name], array)
        assert not got[name].flags.writeable


def test_a_scalar_stays_an_array() -> None:
    _, got = unpack_model(pack_model(1, arrays(), LARGE), LARGE)
    assert got["step"].shape == ()
    assert got["step"] == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"w": np.zeros((100, 1000), np.float64), "step": np.array(5)},
        {"w": np.zeros((1000, 100), np.float32), "step": np.array(5)},
        {"w": np.zeros((100, 1000), np.float32)},
    ],
)
def test_a_model_of_another_spec_is_not_packed(wrong: Columns) -> None:
    with pytest.raises(ModelError, match="not of its spec"):
        pack_model(1, wrong, LARGE)


def test_a_body_that_is_no_model_of_the_spec_is_refused() -> None:
    body = pack_model(1, arrays(), LARGE)
    with pytest.raises(ModelError, match="a model of this spec has"):
        unpack_model(body[:-1], LARGE)
    with pytest.raises(ModelError, match="version is at most"):
        unpack_model(U64_MAX.to_bytes(8, "little") + body[8:], LARGE)
    with pytest.raises(ModelError, match="model 1: column 'w' has a value that is not finite"):
        unpack_model(pack_model(1, arrays(np.nan), LARGE), LARGE)


@given(st.integers(9, 3 * CHUNK_MAX_BYTES), st.integers(1, 2 * CHUNK_MAX_BYTES))
def test_chunks_of_any_body_are_valid_messages_and_give_it_back(size: int, most: int) -> None:
    body = random.Random(size).randbytes(8)[:7] + b"\x00" + bytes(size - 8)
    assembler = ModelAssembler()
    complete = None
    for piece in split_into_chunks("run", 1, LARGE.hash, body, chunk_bytes=most):
        assert complete is None
        decoded = decode_model(encode(piece))
        assert decoded == piece
        complete = assembler.add_chunk(decoded)
    assert complete is not None
    assert complete.body == body


def test_chunks_may_come_in_any_order_and_more_than_once() -> None:
    pieces = cut(3) * 2
    assert len(pieces) == 14
    for seed in range(20):
        random.Random(seed).shuffle(pieces)
        (model,) = offer_all(ModelAssembler(), pieces)
        assert (model.run_id, model.epoch, model.version, model.spec) == ("run", 1, 3, LARGE.hash)
        assert unpack_model(model.body, LARGE)[0] == 3


def test_a_newer_model_drops_what_has_come_of_an_older_one() -> None:
    assembler = ModelAssembler()
    assert offer_all(assembler, cut(3)[:-1] + cut(4)[:1] + cut(3)[-1:]) == []
    assert assembler.missing == 6
    (model,) = offer_all(assembler, cut(4))
    assert model.version == 4
    assert (assembler.newest_model, assembler.missing) == ((1, 4), 0)


def test_an_older_model_is_refused_and_the_same_one_comes_once() -> None:
    assembler = ModelAssembler()
    assert len(offer_all(assembler, cut(4))) == 1
    assert offer_all(assembler, cut(4)) == []
    assert offer_all(assembler, cut(3)) == []
    assert offer_all(assembler, cut(9, epoch=0)) == []
    assert [m.version for m in offer_all(assembler, cut(2, epoch=2))] == [2]


def test_a_forgotten_model_may_come_again() -> None:
    assembler = ModelAssembler()
    offer_all(assembler, cut(4))
    assembler.reset()
    assert len(offer_all(assembler, cut(4))) == 1


def test_another_run_begins_anew() -> None:
    assembler = ModelAssembler()
    offer_all(assembler, cut(4, epoch=5))
    assert [m.run_id for m in offer_all(assembler, cut(0, run_id="other"))] == ["other"]


def test_two_models_of_one_version_are_not_mixed() -> None:
    first, second = cut(3, value=1.0), cut(3, value=2.0)
    (model,) = offer_all(ModelAssembler(), first[:3] + second)
    assert unpack_model(model.body, LARGE)[1]["w"].min() == 2.0


def test_the_digest_is_a_crc_of_all_parts_in_eight_bytes() -> None:
    known = 0xCBF43926.to_bytes(8, "little")  # of the digits 1 to 9, in every table of CRCs
    assert digest_of(b"123456789") == known
    assert digest_of(b"1234", b"", b"56789") == known


def test_a_model_that_does_not_give_its_digest_is_dropped_and_the_next_one_comes() -> None:
    assembler = ModelAssembler()
    pieces = cut(3)
    pieces[2] = replace(pieces[2], payload=bytes(len(pieces[2].payload)))
    with pytest.raises(ModelError, match="model 3: its bytes do not match its digest"):
        offer_all(assembler, pieces)
    assert assembler.newest_model == (-1, -1)
    assert [m.version for m in offer_all(assembler, cut(3))] == [3]


def test_a_body_that_says_another_version_is_dropped() -> None:
    with pytest.raises(ModelError, match="its body has another version"):
        offer_all(ModelAssembler(), [replace(piece, version=4) for piece in cut(3)])


def test_a_model_larger_than_expected_takes_no_memory() -> None:
    with pytest.raises(ModelError, match="expected no more than 100000"):
        ModelAssembler(max_bytes=100_000).add_chunk(cut(3)[0])


@pytest.mark.parametrize("body", [b"", bytes(8)])
def test_an_empty_body_is_not_sent(body: bytes) -> None:
    with pytest.raises(ModelError, match="a model of"):
        list(split_into_chunks("run", 1, LARGE.hash, body))


HEAD = Schema((Column("w", "f4", (64, 32)), Column("bias", "f4", (32,)), Column("n", "i8", (2, 2))))


def rounded(**changed: object) -> Columns:
    rng = np.random.default_rng(0)
    given = {"w": rng.standard_normal((64, 32), np.float32), "n": np.ones((2, 2), np.int64)}
    given["bias"] = rng.standard_normal(32, np.float32)
    given |= changed  # type: ignore[arg-type]  # arrays
    body = pack_model(3, round_arrays(given, HEAD), in_float16(HEAD))
    version, got = unpack_model(body, in_float16(HEAD), check=False)
    assert version == 3
    return got


def test_weights_in_16_bits_are_half_of_the_bytes_and_the_rest_keeps_its_digits() -> None:
    got = expand_arrays(rounded())
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 32), np.float32)
    bias = rng.standard_normal(32, np.float32)
    assert got["w"].dtype == np.float32
    np.testing.assert_allclose(got["w"], w, rtol=2**-11, atol=2**-25)
    assert not np.array_equal(got["w"], w)
    assert np.array_equal(got["bias"], bias)
    assert got["n"].dtype == np.int64
    assert body_bytes(HEAD) - body_bytes(in_float16(HEAD)) == 64 * 32 * 2


def test_a_weight_beyond_16_bits_stays_finite_and_one_that_is_not_finite_does_not() -> None:
    w = np.zeros((64, 32), np.float32)
    w[0, :4] = 1e6, -1e6, 1e-12, 65_504.0
    got = rounded(w=w)["w"]
    assert got[0, :4].tolist() == [65_504.0, -65_504.0, 0.0, 65_504.0]
    for broken in (np.nan, np.inf, -np.inf):
        w[3, 3] = broken
        got = rounded(w=w)["w"]
        assert np.isfinite(got).sum() == got.size - 1
        assert not np.isfinite(got[3, 3])
