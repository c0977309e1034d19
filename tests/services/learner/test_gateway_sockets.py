"""What the gateway's sockets receive, and when."""

import socket as tcp
from collections.abc import Iterator

import pytest
import zmq

from vedette.local.daemons import free_port
from vedette_services.learner.gateway_sockets import CutConnections, GatewaySockets
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


@pytest.mark.parametrize("read_before_the_end", [True, False])
def test_a_connection_is_cut_if_the_other_side_still_holds_it_and_the_descriptor_is_surely_its(
    *, read_before_the_end: bool
) -> None:
    cut = CutConnections()
    with (
        tcp.create_server(("127.0.0.1", 0)) as server,
        tcp.create_connection(server.getsockname()),
        server.accept()[0] as accepted,
    ):
        cut.on_event(zmq.EVENT_ACCEPTED, accepted.fileno())
        if read_before_the_end:
            cut.on_all_read()
        # If not, this may be the end of one that had the number before.
        cut.on_event(zmq.EVENT_DISCONNECTED, accepted.fileno())
    assert cut.count == read_before_the_end
