"""An HTTP server whose connections are bounded in number and time, since any peer may connect.

The standard library's server, with a thread for each connection, is enough for a scraper and a few
browsers; it needs no package.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

from vedette_services.net.addresses import Address

log = logging.getLogger("vedette.http")

CONNECTIONS = 16
"""Open at a time, about: one more ends the one that has been open for longest."""

_PLACE_S = 1.0  # the thread of a connection that was hung up is gone sooner
REQUEST_S = 10.0
"""A connection is ended after this time, however busy it is."""


class BoundedHttpServer(ThreadingMixIn, WSGIServer):
    """A WSGI server with at most about `CONNECTIONS` connections at a time.

    Args:
        host, port: the address that it listens at; port 0: any free one.
        app: called in a thread of its own for each request.
        request_s: after this time a connection is ended.

    Raises:
        AddressError: the name does not resolve.
        OSError: the address cannot be bound.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, host: str, port: int, app: WSGIApplication, *, request_s: float = REQUEST_S
    ) -> None:
        host = Address(host).resolved()[0].host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._request_s = request_s
        self._since: dict[socket.socket, float] = {}  # of connections whose thread has not ended
        self._places = threading.Semaphore(2 * CONNECTIONS)
        super().__init__((host, port), _QuietHandler)
        self.set_app(app)

    def process_request(self, request: Any, client_address: Any) -> None:  # as its bases have it
        """Answer in a thread of its own, once there is a place for one."""
        if len(self._since) >= CONNECTIONS:
            _hang_up(next(iter(list(self._since))))  # the oldest; its thread ends in a moment
        if not self._places.acquire(timeout=_PLACE_S):
            super().shutdown_request(request)
            return
        self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection; its thread calls this last."""
        if self._since.pop(request, None) is not None:
            self._places.release()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End what has been open for too long; called about twice a second."""
        too_old = time.monotonic() - self._request_s
        for request in [r for r, since in list(self._since.items()) if since < too_old]:
            _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the failure of one request, for example of a client that went away."""
        log.debug("a request failed", exc_info=True)


def start_http_server(server: BoundedHttpServer, name: str) -> Callable[[], None]:
    """Serve in a thread of this name until the returned function is called."""
    thread = threading.Thread(target=server.serve_forever, name=name, daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(5.0)

    return close


def _hang_up(request: socket.socket) -> None:
    """Wake the thread that waits for this connection: it reads its end."""
    with contextlib.suppress(OSError):  # it has ended meanwhile
        request.shutdown(socket.SHUT_RDWR)


class _QuietHandler(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
