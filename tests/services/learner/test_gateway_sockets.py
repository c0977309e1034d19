"""What comes through the gateway's door, and when."""

from collections.abc import Iterator

import pytest
import zmq

from vedette.local.daemons import free_port
from vedette_services.learner.gateway_sockets import GatewaySockets
from vedette_services.net import sockets
from vedette_services.net.addresses import Address

IN_TIME_MS = 5000


@pytest.fixture
def address() -> Address:
    return Address("127.0.0.1", free_port())


@pytest.fixture
def door(address: Address) -> Iterator[GatewaySockets]:
    door = GatewaySockets(address, None, model_queue=10)
    yield door
    door.close()


@pytest.fixture
def pusher(address: Address) -> Iterator["zmq.Socket[bytes]"]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = sockets.samples_push(context, address, None)
    yield socket
    socket.close(linger=0)
    context.term()


def test_samples_that_are_to_wait_are_not_lost(
    door: GatewaySockets, pusher: "zmq.Socket[bytes]"
) -> None:
    assert pusher.poll(IN_TIME_MS, zmq.POLLOUT), "not connected"
    sockets.send_now(pusher, [b"head", b"payload"])
    while door.samples not in (ready := door.poll(IN_TIME_MS, samples=True)):
        assert ready, "no samples in time"  # others were heard first
    assert door.samples not in door.poll(0, samples=False)
    assert door.samples in door.poll(0, samples=True)
    assert bytes(door.receive()[0][1]) == b"payload"


def test_a_door_closes_while_samples_are_to_wait(address: Address) -> None:
    door = GatewaySockets(address, None, model_queue=10)
    door.poll(0, samples=False)
    door.close()
    GatewaySockets(address, None, model_queue=10).close()  # its ports are free
