"""Frames that are well formed and wrong: each is refused and counted by a real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
import zmq
from daemons import START_S, wait_for
from gateway_process import N_BUFFER, GatewayProcess, HonestManager

from vedette_protocol.codec import encode
from vedette_protocol.messages import ActorReport

ABSURD: list[Any] = [
    *(None, True, False, -1, 0.5, float("nan"), float("inf"), 2**63, 2**64 - 1),
    *("", "x" * 3000, "../../etc/passwd", "O", "\x00", b"", b"\xff" * 200, [], [[]], {}, {"a": {}}),
    *([0] * 100, msgpack.ExtType(1, b"x"), msgpack.Timestamp(0)),
]
GROWTH_MIB = 150.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("gateway")) as gateway:
        gateway.status()
        yield gateway
        assert gateway.alive(), gateway.log


@pytest.fixture(scope="module")
def honest(gateway: GatewayProcess) -> Iterator[HonestManager]:
    honest = HonestManager(gateway)
    honest.send_some(3)
    yield honest
    honest.close()


@pytest.fixture
def hostile(gateway: GatewayProcess, honest: HonestManager) -> Iterator[HonestManager]:
    """A manager that the gateway knows, and that then goes astray."""
    hostile = HonestManager(gateway, "hostile")
    hostile.send_some(1)
    yield hostile
    honest.send_some(2)
    status = gateway.status()
    # what was inserted is honest
    assert status["samples"]["inserted"] % N_BUFFER == 0
    assert gateway.alive(), gateway.log
    hostile.close()


def refused(gateway: GatewayProcess) -> int:
    """Messages: what was rejected is counted in rows, each test's batch as one at least."""
    status = gateway.status()
    return int(status["garbage"] + status["samples"]["rejected"])


def header(frames: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgpack.unpackb(bytes(frames[0]))
    return found


@pytest.mark.parametrize("kind", ["batch", "report"])
def test_every_field_of_a_header_wrong_in_turn_is_refused(
    gateway: GatewayProcess, hostile: HonestManager, kind: str
) -> None:
    message = hostile.batch() if kind == "batch" else hostile.report()
    sound = header(encode(message))
    payload = bytes(encode(message)[1])
    before = refused(gateway)
    inserted = gateway.status()["samples"]["inserted"]
    sent = 0
    for field in sound:
        wrong: list[dict[str, Any]] = [{k: v for k, v in sound.items() if k != field}]
        wrong += [{**sound, field: v} for v in ABSURD if repr(v) != repr(sound[field])]
        for one in wrong:
            if is_sound(field, one.get(field)):
                continue
            hostile.samples.send_multipart([msgpack.packb(one), payload])
            sent += 1
    if kind == "batch":  # in a report, a key that is not known is ignored
        hostile.samples.send_multipart([msgpack.packb({**sound, "__class__": "x"}), payload])
        sent += 1
    wait_for(lambda: refused(gateway) >= before + sent, "count of all")
    assert gateway.status()["samples"]["inserted"] == inserted


def is_sound(field: str, value: object) -> bool:
    """Values that are odd and allowed: another run's id, 64 random bits, ..."""
    match field:
        case "run_id":
            return value in ("", "O")
        case "host":
            return type(value) is str
        case "manager":
            return value == "O"
        case "incarnation":
            return type(value) is int and value > 0
        case _:
            return False


def test_bytes_of_msgpack_that_try_to_cost_much_are_refused(
    gateway: GatewayProcess, hostile: HonestManager
) -> None:
    payload = b"x" * 100
    costly = [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1
        b"\xdf\xff\xff\xff\xff",  # a map of as many
        b"\xc6\xff\xff\xff\xff",  # as many bytes
        b"\x91" * 4000 + b"\x00",  # nested
        b"\x91" * 100_000,
        b"\x80" + b"\x00",  # something after the end
        b"\x82\xa1v\x01\xa1v\x01",  # a key twice
        b"\x81\xa1v\xc4\x01\xff",
        b"\xa2\xff\xfe",  # no text
        bytes(5000),
    ]
    before = refused(gateway)
    for one in costly:
        hostile.samples.send_multipart([one, payload])
    sound = [bytes(frame) for frame in encode(hostile.batch())]
    for frames in ([sound[0]], [b""], [b"", b""]):
        hostile.samples.send_multipart(frames)
    wait_for(lambda: refused(gateway) >= before + len(costly) + 3, "count of all")


def test_frames_behind_the_second_are_messages_of_their_own(
    gateway: GatewayProcess, hostile: HonestManager
) -> None:
    before = refused(gateway)
    accounting = gateway.status()["samples"]
    sound = [bytes(frame) for frame in encode(hostile.batch(seq=hostile.sent))]
    for frames in ([*sound, b""], [*sound, sound[0]], [b"", *sound, *sound], sound * 500):
        hostile.samples.send_multipart(frames)
    hostile.send_some(1)  # the same batch once more, and all is well behind it

    def duplicates() -> int:
        return int(gateway.status()["samples"]["duplicates"] - accounting["duplicates"])

    wait_for(lambda: duplicates() >= 501 * N_BUFFER, "count of the same batch again")
    assert refused(gateway) >= before + 5
    assert gateway.status()["samples"]["inserted"] - accounting["inserted"] == N_BUFFER


def test_samples_that_are_not_this_runs_are_rejected_and_acknowledged(
    gateway: GatewayProcess, hostile: HonestManager
) -> None:
    sound = hostile.batch()
    row = gateway.schema.payload_bytes(1)

    def with_value(column: str, value: float) -> bytes:
        payload = bytearray(sound.payload)
        views = gateway.schema.views(payload, sound.rows)
        at = views[column].__array_interface__["data"][0]
        base = np.frombuffer(payload, np.uint8).__array_interface__["data"][0]
        raw = np.array([value], views[column].dtype).tobytes()
        payload[at - base : at - base + len(raw)] = raw
        return bytes(payload)

    booleans = bytearray(sound.payload)
    booleans[-2 * 24] = 7  # in the column `truncated`, 20 rows padded to 24
    wrong = [
        hostile.batch(payload=sound.payload[:-1]),
        hostile.batch(payload=bytes(sound.payload) + b"x"),
        hostile.batch(payload=b""),
        hostile.batch(rows=N_BUFFER - 7),
        hostile.batch(rows=1, payload=bytes(row + 8)),
        hostile.batch(schema="0" * 16),
        hostile.batch(payload=with_value("reward", float("nan"))),
        hostile.batch(payload=with_value("reward", float("inf"))),
        hostile.batch(payload=with_value("obs", float("-inf"))),
        hostile.batch(payload=with_value("action", 2)),
        hostile.batch(payload=with_value("action", -(2**62))),
        hostile.batch(payload=bytes(booleans)),
        # sound in itself, and larger than the run's batches, the ring's guard, the whole ring
        *(
            hostile.batch(rows=n, payload=bytes(gateway.schema.payload_bytes(n)))
            for n in (N_BUFFER + 1, 6_000, 500_000)
        ),
    ]
    before = gateway.status()["samples"]
    for seq, batch in enumerate(wrong, hostile.sent):
        assert hostile.hear_until(lambda: hostile.limit > seq, START_S)  # noqa: B023 - called at once
        hostile.push(batch._replace(seq=seq))
    hostile.sent += len(wrong)
    assert hostile.hear_until(lambda: hostile.settled >= hostile.sent, START_S), gateway.log
    after = gateway.status()["samples"]
    assert after["inserted"] == before["inserted"]
    assert after["rejected"] == before["rejected"] + sum(
        min(batch.rows, N_BUFFER) for batch in wrong
    )
    hostile.send_some(2)  # it may mend its ways


def test_absurd_counts_in_sound_messages_break_nothing(
    gateway: GatewayProcess, hostile: HonestManager
) -> None:
    most = 2**62 - 1
    memory = gateway.resident_mib()
    actor = ActorReport(0, True, most, most, most, most, 1e308, -1e308, "\U0001f4a5" * 200)
    for i in range(1500):  # more than the ledger has places
        hostile.push(
            hostile.report(
                manager=f"ghost-{i}",
                incarnation=i,
                **dict.fromkeys(("produced", "dropped", "window_rows", "window_bytes"), most),
                window_batches=most,
                sequenced=most,
                actors=(actor,) * (200 if i % 100 == 0 else 1),
                host="h" * 200,
            )
        )
    for i in range(20):  # sums beyond 64 bits
        hostile.push(hostile.report(manager="many", incarnation=10_000 + i, produced=most))
        hostile.push(hostile.batch(manager="many", incarnation=10_000 + i, base=most - 1, seq=most))
    wait_for(
        lambda: any(m["id"] == "many" for m in gateway.status()["managers"]),
        "manager in the status",
    )
    assert gateway.status()["managers"]
    assert gateway.resident_mib() < memory + GROWTH_MIB


def test_subscriptions_that_are_none_are_refused(
    gateway: GatewayProcess, hostile: HonestManager
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    before = refused(gateway)
    words = [
        b"\x01" + b"x" * 4000,
        b"\x01m/\x00/",
        b"\x01m//",
        b"\x01s/" + b"a" * 65 + b"/",
        b"\x02hello",
        b"\xff" * 300,
    ]
    try:
        for endpoint in (gateway.address.control, gateway.address.models):
            socket = context.socket(zmq.XSUB)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(endpoint)
            for one in words:
                socket.send(one)
            after, before = before + 4, before + 4
            wait_for(lambda after=after: refused(gateway) >= after, "count of it")
            socket.close()
    finally:
        context.destroy(linger=0)


def test_what_outsiders_cause_is_logged_at_a_bounded_rate(
    gateway: GatewayProcess, hostile: HonestManager
) -> None:
    before = len(gateway.log.splitlines())
    seen = refused(gateway)
    for _ in range(5000):
        hostile.samples.send_multipart([b"nonsense", b""])
    wait_for(lambda: refused(gateway) >= seen + 5000, "count of all")
    assert len(gateway.log.splitlines()) - before < 30
