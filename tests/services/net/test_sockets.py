"""Options of the sockets that only show on a real connection."""

import socket

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from vedette_services.net.addresses import Address
from vedette_services.net.handshake import EVENTS
from vedette_services.net.sockets import control_sub


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
