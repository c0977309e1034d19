"""Whether what a manager sends reaches its learner, as far as acks show it."""

from __future__ import annotations

import pytest

from vedette_services.actors.connection import SILENCE_S, Connection
from vedette_services.actors.manager_log import UNHEARD


def after_sockets(*brought: str, connected: bool = True) -> Connection:
    """A connection whose sockets, one pair after another, brought messages and acks, and then
    fell silent."""
    connection = Connection(lambda: 0.0, 0.0)
    now = 0.0
    for words in brought:
        connection.on_new_sockets()
        connection.connected = connected
        if "message" in words:
            connection.on_message(now)
        if "ack" in words:
            connection.on_ack(now, announced=True)
        now += SILENCE_S + 1.0
        assert connection.poll_remake(now, holds=False) is not None
    return connection


@pytest.mark.parametrize(
    ("brought", "unheard"),
    [
        (("message",), 1),
        (("message", "message"), UNHEARD),
        (("message and ack",), 0),
        (("message and ack", "message"), 1),  # the ack was of other sockets
        (("message", "message and ack"), 0),
        (("message", ""), 0),  # nobody is there: the message was of other sockets
        (("",), 0),
    ],
)
def test_sockets_that_bring_messages_and_no_ack_are_counted(
    brought: tuple[str, ...], unheard: int
) -> None:
    assert after_sockets(*brought).unheard == unheard


def test_sockets_that_were_never_connected_are_not_counted() -> None:
    assert after_sockets("message", "message", connected=False).unheard == 0
