"""What the gateway's sockets receive, and when."""

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
def gateway_sockets(address: Address) -> Iterator[GatewaySockets]:
    gateway_sockets = GatewaySockets(address, None, model_queue=10)
    yield gateway_sockets
    gateway_sockets.close()


@pytest.fixture
def pusher(address: Address) -> Iterator["zmq.Socket[bytes]"]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = sockets.samples_push(context, address, None)
    yield socket
    socket.close(linger=0)
    context.term()


def test_samples_that_are_to_wait_are_not_lost(
    gateway_sockets: GatewaySockets, pusher: "zmq.Socket[bytes]"
) -> None:
    assert pusher.poll(IN_TIME_MS, zmq.POLLOUT), "not connected"
    sockets.send_now(pusher, [b"head", b"payload"])
    while gateway_sockets.samples not in (ready := gateway_sockets.poll(IN_TIME_MS, samples=True)):
        assert ready, "no samples in time"  # others were heard first
    assert gateway_sockets.samples not in gateway_sockets.poll(0, samples=False)
    assert gateway_sockets.samples in gateway_sockets.poll(0, samples=True)
    assert bytes(gateway_sockets.receive()[0][1]) == b"payload"


def test_sockets_close_while_samples_are_to_wait(address: Address) -> None:
    gateway_sockets = GatewaySockets(address, None, model_queue=10)
    gateway_sockets.poll(0, samples=False)
    gateway_sockets.close()
    GatewaySockets(address, None, model_queue=10).close()  # its ports are free
