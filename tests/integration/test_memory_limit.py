"""A message without end fills the gateway, which is started again: nobody else feels it."""

from __future__ import annotations

import threading
import time

import pytest
import zmq
from counting_run import CountingRun
from daemons import Daemons, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FRAME = bytes(16 << 20)


def test_a_message_without_end_costs_a_restart_of_the_gateway_and_no_sample(
    daemons: Daemons,
) -> None:
    run = CountingRun(daemons)
    run.start_manager("a")
    run.flows()
    trainer, gateway = run.learner.child("trainer"), run.learner.child("gateway")
    stop = threading.Event()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    hostile = context.socket(zmq.PUSH)
    hostile.setsockopt(zmq.LINGER, 0)
    hostile.setsockopt(zmq.SNDTIMEO, 500)
    hostile.connect(run.address.samples)

    def talk() -> None:
        """Frames of one message, without end; a little slower than the machine could."""
        while not stop.is_set():
            try:
                hostile.send(FRAME, zmq.SNDMORE, copy=False)
            except zmq.Again:
                continue
            time.sleep(0.02)

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        wait_for(lambda: "starting it again; the books go on" in run.learner.log, "limit", 120.0)
    finally:
        stop.set()
        talking.join(10.0)
        context.destroy(linger=0)
    wait_for(lambda: run.learner.children("gateway") not in ([], [gateway]), "new gateway")
    run.flows()
    assert run.learner.child("trainer") == trainer  # it was never touched
    proof, books = run.finish()
    assert proof.whole, f"{proof}, {books}"
    assert books["produced"] == books["inserted"], f"{books}"
