"""Topics and subscriptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_protocol.errors import MalformedError
from vedette_protocol.topics import (
    ALL,
    Subscription,
    is_id,
    manager_topic,
    parse_subscription,
    status_topic,
)


def test_a_subscription_says_who_listens_and_where_to_answer() -> None:
    assert parse_subscription(b"\x01all") == Subscription(True, "all", "", ALL)
    assert parse_subscription(b"\x00all") == Subscription(False, "all", "", ALL)
    manager = parse_subscription(b"\x01" + manager_topic("host-a"))
    assert manager == Subscription(True, "manager", "host-a", b"m/host-a/")
    asker = parse_subscription(memoryview(b"\x01" + status_topic("4f2a")))
    assert asker == Subscription(True, "status", "4f2a", b"s/4f2a/")


def test_no_topic_is_the_beginning_of_another() -> None:
    topics = [ALL, *(manager_topic(i) for i in ("a", "ab", "all")), status_topic("a")]
    for topic in topics:
        assert [other for other in topics if other.startswith(topic)] == [topic]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x01",
        b"\x02all",
        b"all",
        b"\x01al",
        b"\x01alll",
        b"\x01m/",
        b"\x01m//",
        b"\x01m/a",
        b"\x01m/a/b/",
        b"\x01m/a b/",
        b"\x01m/\xff/",
        b"\x01x/a/",
        b"\x01m/a/\n",
        b"\x01m/" + b"a" * 65 + b"/",
        b"\x01" + b"m" * 1_000_000,
    ],
)
def test_what_is_no_subscription_of_ours_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_subscription(frame)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_subscription_or_a_protocol_error(frame: bytes) -> None:
    try:
        subscription = parse_subscription(frame)
    except MalformedError:
        return
    assert frame == bytes([subscription.subscribed]) + subscription.topic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 64])
def test_an_id_is_an_id(name: str) -> None:
    assert is_id(name)
    longest = parse_subscription(b"\x01" + manager_topic(name))
    assert longest.name == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a/b", "a b", "a\n", "é", "a:b"])
def test_what_is_no_id_makes_no_topic(name: str) -> None:
    assert not is_id(name)
    with pytest.raises(MalformedError, match="1 to 64"):
        manager_topic(name)
    with pytest.raises(MalformedError, match="1 to 64"):
        status_topic(name)
