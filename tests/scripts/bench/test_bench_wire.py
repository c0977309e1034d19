"""The queues of the bound of the wire."""

from bench.wire import Payload


def test_queues_are_bounded_in_batches_and_in_bytes() -> None:
    assert Payload(64, (4,), "float32").most_waiting == 1000
    large = Payload(32, (4, 84, 84), "uint8")
    assert 2 < large.most_waiting * large.schema.payload_bytes(large.rows) / 2**20 <= 32
    assert Payload(4096, (4, 84, 84), "uint8").most_waiting == 2
