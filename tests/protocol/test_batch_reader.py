"""The reader that remembers headers: whatever comes, it says what `decode_up` says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import REPORT, example_batch

from vedette_protocol import codec
from vedette_protocol.codec import BatchReader, decode_up, encode
from vedette_protocol.errors import ProtocolError
from vedette_protocol.limits import ACTOR_MAX, COUNT_MAX, EPOCH_MAX, U64_MAX
from vedette_protocol.messages import Batch, Buffer
from vedette_protocol.packing import pack, unpack
from vedette_protocol.wire import CODECS

EDGES = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, COUNT_MAX - 1]


def near(limit: int) -> st.SearchStrategy[int]:
    extra_frames = [edge for edge in (*EDGES, limit) if edge <= limit]
    return st.one_of(st.sampled_from(extra_frames), st.integers(0, min(300, limit)))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    seq = draw(near(COUNT_MAX - 1))
    return example_batch()._replace(
        manager=draw(st.sampled_from(["a", "host-b"])),
        incarnation=draw(st.sampled_from([0, 7, U64_MAX, 0xA3736571, 0x00A3736571000000])),
        seq=seq,
        base=draw(st.sampled_from([0, seq // 2, seq])),
        actor=draw(near(ACTOR_MAX)),
        epoch=draw(near(EPOCH_MAX)),
        version=draw(near(COUNT_MAX)),
        env_steps=draw(near(COUNT_MAX)),
        rows=draw(st.integers(1, 3)),
        payload=draw(st.sampled_from([b"payload", b""])),
    )


def read_or_error(read: object, frames: list[Buffer]) -> object:
    assert callable(read)
    try:
        return read(frames)
    except ProtocolError as error:
        return type(error), str(error), error.sender, error.rows


@given(st.lists(batches(), min_size=1, max_size=8))
def test_headers_alike_are_read_as_if_each_were_the_first(sent: list[Batch]) -> None:
    reader = BatchReader()
    for batch in sent:
        frames = encode(batch)
        assert read_or_error(reader.read, frames) == read_or_error(decode_up, frames)


@given(batches())
def test_the_batch_encoder_gives_the_bytes_that_the_declaration_gives(batch: Batch) -> None:
    batch = batch._replace(payload=b"payload")
    assert encode(batch) == CODECS[Batch].encode(batch)


@given(st.lists(batches(), min_size=1, max_size=4), st.data())
def test_a_header_that_was_tampered_with_is_refused_as_ever(
    sent: list[Batch], data: st.DataObject
) -> None:
    reader = BatchReader()
    for batch in sent:
        read_or_error(reader.read, encode(batch))
        header, payload = encode(batch)
        tampered = bytearray(header)
        for _ in range(data.draw(st.integers(1, 2))):
            at = data.draw(st.integers(0, len(header) - 1))
            tampered[at] = data.draw(st.integers(0, 255))
        frames: list[Buffer] = [bytes(tampered), payload]
        assert read_or_error(reader.read, frames) == read_or_error(decode_up, frames)


@pytest.mark.parametrize("key", ["seq", "base", "actor", "epoch", "version", "env_steps"])
@pytest.mark.parametrize("wrong", [-1, True, 1.0, "1", None, U64_MAX])
def test_a_number_that_is_none_is_refused_after_sound_ones(key: str, wrong: object) -> None:
    reader = BatchReader()
    header, payload = encode(example_batch())
    reader.read([header, payload])
    fields = unpack(header, 4096)
    with pytest.raises(ProtocolError):
        reader.read([pack({**fields, key: wrong}), payload])


def test_headers_with_their_keys_in_another_order_are_read_too() -> None:
    reader = BatchReader()
    batch = example_batch()
    header, payload = encode(batch)
    fields = dict(reversed(unpack(header, 4096).items()))
    for _ in range(2):
        assert reader.read([pack(fields), payload]) == batch


def test_reports_and_headers_in_other_buffers_pass_through() -> None:
    reader = BatchReader()
    header, payload = encode(example_batch())
    assert reader.read(encode(REPORT)) == REPORT
    assert reader.read([memoryview(header), payload]) == example_batch()
    for frames in ([], [header], [header, payload, b"more"]):
        with pytest.raises(ProtocolError):
            reader.read(frames)


def test_a_batch_that_was_read_is_one() -> None:
    reader = BatchReader()
    frames = encode(example_batch())
    assert [type(reader.read(frames)) for _ in range(2)] == [Batch, Batch]


def test_no_more_than_so_many_senders_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_SENDERS_MAX", 4)
    reader = BatchReader()
    for incarnation in range(11):
        batch = example_batch()._replace(incarnation=incarnation)
        assert reader.read(encode(batch)) == batch
    assert len(reader._layouts) <= 4
