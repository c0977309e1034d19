"""What the gateway's sockets receive, and when."""

import socket as tcp
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

from vedette.local.daemons import free_port
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.learner.gateway.sockets import (
    SETTLED_S,
    CutConnections,
    GatewaySockets,
)
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.handshake import probe_mechanism, time_handshake

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


def test_a_handshake_that_is_timed_counts_as_none_that_failed(
    gateway_sockets: GatewaySockets, address: Address
) -> None:
    with ThreadPoolExecutor(1) as pool:
        for port in range(3):
            asked = pool.submit(time_handshake, address, None, port, 5.0)
            while not asked.done():
                count_handshakes(gateway_sockets, 0.02)
            assert asked.result() is not None
        count_handshakes(gateway_sockets, SETTLED_S + 1.0)
        assert gateway_sockets.refused["handshakes"] == 0
        for _ in range(3):  # on a busy machine one is forgiven: this loop may have stood still
            asked_again = pool.submit(probe_mechanism, address)
            while not asked_again.done():
                count_handshakes(gateway_sockets, 0.02)
            assert asked_again.result() in ("NULL", None)  # None: it was not answered in time
            count_handshakes(gateway_sockets, SETTLED_S + 1.0)
            if gateway_sockets.refused["handshakes"]:
                break
        assert gateway_sockets.refused["handshakes"]


def count_handshakes(gateway_sockets: GatewaySockets, for_s: float) -> None:
    """Count connections as a gateway does that runs for so long."""
    refusals = RateLimitedLog()
    until = time.monotonic() + for_s
    while (now := time.monotonic()) < until:
        gateway_sockets.poll(20, samples=True)
        gateway_sockets.log_refusals(refusals, now)


def test_peers_that_are_cut_by_larger_queues_have_not_failed_their_handshake(
    gateway_sockets: GatewaySockets, address: Address
) -> None:
    with tcp.create_connection((address.host, address.port + 2)):  # its handshake takes a while
        count_handshakes(gateway_sockets, 0.5)
        gateway_sockets.set_model_queue(20)
    count_handshakes(gateway_sockets, SETTLED_S + 1.0)
    assert gateway_sockets.refused["handshakes"] == 0


def test_a_port_without_a_learner_completes_no_handshake_and_says_so_at_once() -> None:
    began = time.monotonic()
    assert time_handshake(Address("127.0.0.1", free_port()), None, 0, 20.0) is None
    assert time.monotonic() - began < 10.0
