"""A message without end fills the gateway, which is started again: nobody else feels it."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from counting_run import CountingRun
from daemons import Daemons, wait_for

from vedette_services.net.addresses import Address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
MORE_AND_LONG = b"\x03"  # flags of a frame after which another one of the same message comes
FRAME = MORE_AND_LONG + (4 << 20).to_bytes(8) + bytes(4 << 20)


def talk_without_end(address: Address, stop: threading.Event) -> None:
    """Frames of one message; libzmq's own sender would keep them until the last."""
    with socket.create_connection((address.host, address.port), timeout=5.0) as hostile:
        hostile.sendall(GREETING + b"\x04" + bytes([len(READY)]) + READY)
        while not stop.is_set():
            try:
                hostile.sendall(FRAME)
            except OSError:
                return  # the gateway has ended: what we came for
            time.sleep(0.005)


def test_a_message_without_end_costs_a_restart_of_the_gateway_and_no_sample(
    daemons: Daemons,
) -> None:
    run = CountingRun(daemons)
    run.start_manager("a")
    run.flows()
    trainer, gateway = run.learner.child("trainer"), run.learner.child("gateway")
    stop = threading.Event()
    talking = threading.Thread(target=talk_without_end, args=(run.address, stop))
    talking.start()
    try:
        wait_for(lambda: "starting it again" in run.learner.log, "limit", 120.0)
    finally:
        stop.set()
        talking.join(10.0)
    wait_for(lambda: run.learner.children("gateway") not in ([], [gateway]), "new gateway")
    run.flows()
    assert run.learner.child("trainer") == trainer  # it was never touched
    proof, accounting = run.finish()
    assert proof.whole, f"{proof}, {accounting}"
    assert accounting["produced"] == accounting["inserted"], f"{accounting}"
