"""Options of the sockets that only show on a real connection."""

import gc
import socket

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from vedette_services.net.addresses import Address
from vedette_services.net.handshake import EVENTS
from vedette_services.net.sockets import control_sub, models_xpub


@pytest.mark.parametrize(("host", "ipv6"), [("127.0.0.1", 0), ("::1", 1), ("host.invalid", 1)])
def test_a_socket_speaks_ipv6_unless_its_address_is_ipv4(host: str, ipv6: int) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sub = control_sub(context, Address(host, 6000))
    assert sub.getsockopt(zmq.IPV6) == ipv6
    context.destroy(linger=0)


def test_no_event_is_missed_however_early_a_connection_fails() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        sub = control_sub(context, Address("127.0.0.1", server.getsockname()[1] - 1), events=EVENTS)
        server.accept()[0].close()  # connected and closed before anybody asks for the monitor
        monitor = sub.get_monitor_socket()
        assert monitor.poll(10_000)
        assert recv_monitor_message(monitor)["event"] == zmq.EVENT_CONNECTED
    sub.disable_monitor()
    context.destroy(linger=0)


def open_sockets(context: "zmq.Context[zmq.Socket[bytes]]") -> list[object]:
    """Sockets of a context that hold it: its end waits for them."""
    # By their type: isinstance asks all objects of other libraries for their `__class__`.
    sockets = [each for each in gc.get_objects() if issubclass(type(each), zmq.Socket)]
    return [each for each in sockets if each.context is context and not each.closed]


def test_a_socket_that_cannot_be_bound_or_connected_is_closed() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1] - 2)
        # What is raised has the socket: nobody else would close it.
        with pytest.raises(zmq.ZMQError) as unbound:
            models_xpub(context, address)
    with pytest.raises(zmq.ZMQError) as unconnected:
        control_sub(context, Address("no\0name", 6000), events=EVENTS)
    left = open_sockets(context)
    context.destroy(linger=0)
    assert left == []
    assert unbound.value.errno == zmq.EADDRINUSE
    assert unconnected.value.errno == zmq.EINVAL
