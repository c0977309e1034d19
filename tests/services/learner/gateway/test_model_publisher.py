"""Models on their way out."""

from vedette_protocol import topics
from vedette_protocol.codec import decode_model
from vedette_protocol.limits import CHUNK_MAX_BYTES
from vedette_protocol.messages import ModelChunk
from vedette_services.learner.gateway.model_publisher import ModelPublisher, PackedModel

BODY_BYTES = 20 * CHUNK_MAX_BYTES


def model(version: int, size: int = 100) -> PackedModel:
    body = version.to_bytes(8, "little") + bytes(size)
    return PackedModel("0123456789abcdef", 1, "0" * 16, body)


def all_turns(publisher: ModelPublisher) -> list[tuple[bytes, ModelChunk]]:
    sent = []
    while publisher.busy:
        for frames in publisher.next_messages():
            chunk = decode_model([bytes(frame) for frame in frames[1:]])
            sent.append((bytes(frames[0]), chunk))
    return sent


def test_a_model_goes_to_everybody_once() -> None:
    publisher = ModelPublisher()
    publisher.publish(model(3))
    assert [(topic, chunk.version) for topic, chunk in all_turns(publisher)] == [(topics.ALL, 3)]
    assert publisher.next_messages() == []


def test_a_joiner_gets_the_newest_on_its_own_topic() -> None:
    publisher = ModelPublisher()
    publisher.publish(model(3))
    all_turns(publisher)
    publisher.on_subscribed(b"m/a/")
    publisher.on_subscribed(b"m/a/")
    assert [(topic, chunk.version) for topic, chunk in all_turns(publisher)] == [(b"m/a/", 3)]


def test_a_joiner_before_the_first_model_gets_it_when_it_comes() -> None:
    publisher = ModelPublisher()
    publisher.on_subscribed(b"m/a/")
    assert not publisher.busy
    publisher.publish(model(0))
    assert {topic for topic, _ in all_turns(publisher)} == {b"m/a/", topics.ALL}


def test_a_large_model_goes_out_a_few_chunks_at_a_turn() -> None:
    publisher = ModelPublisher()
    publisher.publish(model(1, BODY_BYTES))
    assert len(publisher.next_messages()) < 81
    assert publisher.busy


def test_versions_are_skipped_while_one_is_going_out() -> None:
    publisher = ModelPublisher()
    publisher.publish(model(1, BODY_BYTES))
    publisher.next_messages()
    for version in range(2, 10):
        publisher.publish(model(version, BODY_BYTES))
    versions = {chunk.version for _, chunk in all_turns(publisher)}
    assert versions == {1, 9}
