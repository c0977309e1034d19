"""Topics of the two XPUB channels: to everybody, to one manager, to one client of the status.

A subscriber gets every message whose topic starts with its own, so a private topic ends in a slash:
``m/a/`` is not a prefix of ``m/ab/``. Subscribing is all that a subscriber can do. The learner
answers a subscription to a private topic with the messages that its subscriber needs first.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final, Literal

from vedette_protocol.errors import MalformedError
from vedette_protocol.limits import ID_MAX_CHARS

ALL: Final = b"all"
"""To everybody, on either channel."""

_ID: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{ID_MAX_CHARS}}}")
_PRIVATE: Final = re.compile(rb"([ms])/([A-Za-z0-9._-]{1,64})/")


@functools.lru_cache(maxsize=1024)  # called for every batch, with few ids
def is_id(text: str) -> bool:
    """Return True if `text` is a valid id: 1 to 64 of ``A-Z a-z 0-9 . _ -``."""
    return _ID.fullmatch(text) is not None


def manager_topic(manager: str) -> bytes:
    """Return the topic of one manager, on either channel.

    Raises:
        MalformedError: the id is invalid.
    """
    return _private_topic(b"m/", manager, "manager id")


def status_topic(nonce: str) -> bytes:
    """Return the topic on which a client that drew this nonce gets the status.

    Raises:
        MalformedError: the nonce is invalid.
    """
    return _private_topic(b"s/", nonce, "nonce")


def _private_topic(prefix: bytes, name: str, what: str) -> bytes:
    if not is_id(name):
        raise MalformedError(f"{name!r} is not a {what}: expected 1 to 64 of A-Z a-z 0-9 . _ -")
    return prefix + name.encode() + b"/"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription, or the end of one, that an XPUB socket received.

    Args:
        subscribed: False at the end of a subscription.
        audience: ``"all"`` for the common topic, ``"manager"``, ``"status"``.
        name: the manager's id, or the nonce of the status's client; "" for the common topic.
        topic: the topic to answer on.
    """

    subscribed: bool
    audience: Literal["all", "manager", "status"]
    name: str
    topic: bytes


def parse_subscription(frame: bytes | memoryview) -> Subscription:
    """Parse a subscription frame: ``\\x01`` or ``\\x00``, then the topic.

    Raises:
        MalformedError: the frame has another form or topic. Any peer may send anything here.
    """
    if not 1 < len(frame) <= ID_MAX_CHARS + 4:
        raise MalformedError(f"a subscription has 2 to {ID_MAX_CHARS + 4} bytes, got {len(frame)}")
    event = bytes(frame)
    verb = event[0]
    topic = event[1:]
    if verb > 1:
        raise MalformedError(f"a subscription begins with 0 or 1, not {verb}")
    if topic == ALL:
        return Subscription(verb == 1, "all", "", topic)
    match = _PRIVATE.fullmatch(topic)
    if match is None:
        raise MalformedError(f"{topic!r} is not a topic")
    audience: Literal["manager", "status"] = "manager" if match[1] == b"m" else "status"
    return Subscription(verb == 1, audience, match[2].decode(), topic)
