"""Topics of the two XPUB channels: to everybody, to one manager, to one who asks for the status.

A subscriber gets what begins with its topic, so a private topic ends in a slash: ``m/a/`` is no
beginning of ``m/ab/``. Subscribing is the only thing a subscriber says; the learner answers a
subscription to a private topic with what the newcomer needs.
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


@functools.lru_cache(maxsize=1024)  # asked of every batch, of a few ids
def is_id(text: str) -> bool:
    """Whether `text` may be the id of a manager or a run: 1 to 64 of ``A-Z a-z 0-9 . _ -``."""
    return _ID.fullmatch(text) is not None


def manager_topic(manager: str) -> bytes:
    """The topic of one manager, on either channel.

    Raises:
        MalformedError: this is no manager's id.
    """
    if not is_id(manager):
        raise MalformedError(f"{manager!r} is no manager id: 1 to 64 of A-Z a-z 0-9 . _ -")
    return b"m/" + manager.encode() + b"/"


def status_topic(nonce: str) -> bytes:
    """The topic on which the asker with this nonce gets the status.

    Raises:
        MalformedError: this is no nonce.
    """
    if not is_id(nonce):
        raise MalformedError(f"{nonce!r} is no nonce: 1 to 64 of A-Z a-z 0-9 . _ -")
    return b"s/" + nonce.encode() + b"/"


@dataclass(frozen=True, slots=True)
class Subscription:
    """What an XPUB socket received.

    Args:
        subscribed: False when it was ended.
        audience: who subscribed: ``"all"`` for the common topic, ``"manager"``, ``"status"``.
        name: the manager's id, or the asker's nonce; "" for the common topic.
        topic: where to answer.
    """

    subscribed: bool
    audience: Literal["all", "manager", "status"]
    name: str
    topic: bytes


def parse_subscription(frame: bytes | memoryview) -> Subscription:
    """What a subscription frame says: ``\\x01`` or ``\\x00``, then the topic.

    Raises:
        MalformedError: it is none of ours (any peer may send anything here).
    """
    if not 1 < len(frame) <= ID_MAX_CHARS + 4:
        raise MalformedError(f"a subscription has 2 to {ID_MAX_CHARS + 4} bytes, got {len(frame)}")
    event = bytes(frame)
    verb, topic = event[0], event[1:]
    if verb > 1:
        raise MalformedError(f"a subscription begins with 0 or 1, not {verb}")
    if topic == ALL:
        return Subscription(verb == 1, "all", "", topic)
    match = _PRIVATE.fullmatch(topic)
    if match is None:
        raise MalformedError(f"{topic!r} is no topic")
    audience: Literal["manager", "status"] = "manager" if match[1] == b"m" else "status"
    return Subscription(verb == 1, audience, match[2].decode(), topic)
