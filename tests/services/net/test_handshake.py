"""Why a handshake failed: what a monitor reports, and what the other side greets with."""

from __future__ import annotations

import pytest
import zmq

from vedette_services.net import handshake
from vedette_services.net.addresses import Address
from vedette_services.net.handshake import HandshakeMonitor
from vedette_services.net.keys import ClientKeys, KeyPair


class Failing:
    """A connection that fails, with another greeting each time that one looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.greets = ""
        pair = KeyPair("a", b"p" * 40, b"s" * 40)
        self.monitor = HandshakeMonitor(Address(), ClientKeys(pair, b"l" * 40))
        monkeypatch.setattr(handshake.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(handshake, "probe_mechanism", lambda *_: self.greets or None)

    def fail(self, greets: str) -> str:
        """Connect and fail, some time after the last."""
        self.now = self.now + 1.5
        self.greets = greets
        self.monitor.on_event(zmq.EVENT_CONNECTED, 0)
        return self.monitor.on_event(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, 0)


def test_a_tunnel_whose_learner_is_away_for_a_while_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Failing(monkeypatch)
    assert [failing.fail("") for _ in range(5)] == [""] * 5
    assert failing.fail("CURVE") == ""  # it has come back just now
    assert failing.fail("") == ""
    assert failing.fail("CURVE") == ""


def test_a_learner_with_another_key_is_told_by_failing_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Failing(monkeypatch)
    assert failing.fail("CURVE") == ""
    assert "another key than learner.toml says" in failing.fail("CURVE")
