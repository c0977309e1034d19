"""The HTTP server answers everybody within its bounds, whoever else holds connections open."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vedette_services.net.http_server import CONNECTIONS, BoundedHttpServer, start_http_server


def hello(environ: dict[str, Any], start: Any) -> list[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


@contextmanager
def serving(**more: float) -> Iterator[int]:
    server = BoundedHttpServer("127.0.0.1", 0, hello, **more)
    close = start_http_server(server, "test")
    try:
        yield server.server_port
    finally:
        close()


def half_request(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
    return connection


def test_half_requests_take_a_bounded_number_of_threads_and_keep_nobody_out() -> None:
    with serving() as port:
        before = threading.active_count()
        flood = [half_request(port) for _ in range(100)]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                assert answer.read() == b"hello"
            assert threading.active_count() - before <= 2 * CONNECTIONS
        finally:
            for connection in flood:
                connection.close()


def test_a_request_that_takes_too_long_is_ended() -> None:
    with serving(request_s=0.2) as port, half_request(port) as slow:
        assert slow.recv(1) == b""
