"""Receives models on a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading

import zmq

from vedette_protocol.codec import decode_model
from vedette_protocol.errors import ProtocolError
from vedette_protocol.model import CompleteModel, ModelAssembler
from vedette_rl.storage.buffer_pool import BufferPool
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys

_POLL_MS = 1000
_CLOSE_WAIT_S = 2.0

log = logging.getLogger("vedette.actors")


class ModelListener:
    """Owns the models' socket and its thread; closed and made again with the other sockets.

    A queue that is read now and then holds old models: only a reader that is always there sees the
    newest (without it, readers were 55 versions behind).
    """

    def __init__(
        self,
        context: sockets.Context,
        address: Address,
        manager: str,
        keys: ClientKeys | None = None,
    ) -> None:
        self._context = context
        self._address = address
        self._manager = manager
        self._keys = keys
        self._newest: CompleteModel | None = None
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = socket.socketpair()
        self._stop_read, self._stop_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._assembler = ModelAssembler(memory=BufferPool().allocate)
        self._refused = 0
        self._thread = threading.Thread(target=self._listen, name="models", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable when there is a model to take."""
        return self._wake_read.fileno()

    def pop_model(self) -> CompleteModel | None:
        """The newest complete model, if it was not taken before."""
        try:
            self._wake_read.recv(4096)
        except BlockingIOError:
            return None
        with self._lock:
            newest = self._newest
            self._newest = None
        return newest

    def close(self) -> None:
        """End the thread and its socket."""
        self._stop_write.close()
        self._thread.join(_CLOSE_WAIT_S)
        for end in (self._wake_read, self._wake_write, self._stop_read):
            end.close()

    def _listen(self) -> None:
        subscriptions = sockets.manager_subscriptions(self._manager)
        models = sockets.models_sub(self._context, self._address, *subscriptions, keys=self._keys)
        poller = zmq.Poller()
        poller.register(models, zmq.POLLIN)
        poller.register(self._stop_read, zmq.POLLIN)
        try:
            while True:
                ready = dict(poller.poll(_POLL_MS))
                if self._stop_read.fileno() in ready:
                    return
                if models in ready:
                    # A chunk is copied once, to its place in the model.
                    self._receive([frame.buffer for frame in models.recv_multipart(copy=False)])
        finally:
            models.close(linger=0)

    def _receive(self, frames: list[memoryview]) -> None:
        try:
            complete = self._assembler.add_chunk(decode_model(frames[1:]))
        except ProtocolError as error:
            self._refused += 1
            if self._refused & (self._refused - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...
                log.warning("refused a piece of a model (%d so far): %s", self._refused, error)
            return
        if complete is None:
            return
        with self._lock:
            self._newest = complete
        try:
            self._wake_write.send(b"m")
        except BlockingIOError:
            return  # enough wake-ups are waiting
