"""The manager's sockets: where they connect to, and the thread that always receives models."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

import zmq

from vedette_protocol.codec import decode_model, encode
from vedette_protocol.errors import ProtocolError
from vedette_protocol.messages import Batch, Report
from vedette_protocol.model import CompleteModel, ModelAssembler
from vedette_rl.storage.system import BufferPool
from vedette_services.errors import ServicesError
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.handshake import EVENTS
from vedette_services.net.keys import ClientKeys

log = logging.getLogger("vedette.actors")

_POLL_MS = 1000
_CLOSE_WAIT_S = 2.0
_AT_ONCE_S = 0.02  # an IP address takes less


class ModelListener:
    """Owns the models' socket and its thread; closed and made anew with the other sockets.

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
        self._context, self._address, self._manager, self._keys = context, address, manager, keys
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
            newest, self._newest = self._newest, None
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


class ManagerSockets:
    """The manager's sockets: samples up, control and models down. Made anew as a whole."""

    def __init__(
        self,
        context: sockets.Context,
        address: Address,
        manager: str,
        keys: ClientKeys | None,
    ) -> None:
        self._context, self._address, self._manager, self._keys = context, address, manager, keys
        self.samples = sockets.samples_push(context, address, keys, EVENTS)
        self.monitor = self.samples.get_monitor_socket()
        subscriptions = sockets.manager_subscriptions(manager)
        self.control = sockets.control_sub(context, address, *subscriptions, keys=keys)
        self.models = ModelListener(context, address, manager, keys)

    def send(self, message: Batch | Report) -> bool:
        """Send without waiting; False where that cannot be now."""
        try:
            sockets.send_now(self.samples, encode(message))
        except zmq.Again:
            return False
        return True

    def remake_models(self) -> None:
        self.models.close()
        self.models = ModelListener(self._context, self._address, self._manager, self._keys)

    def close(self, linger_ms: int = 0) -> None:
        self.models.close()
        self.control.close(linger=0)
        self.samples.disable_monitor()
        self.monitor.close(linger=0)
        self.samples.close(linger=linger_ms)


class LearnerLookup:
    """Gives the address to connect to: of a name's several, the next where one was silent.

    ::

        if (address := lookup.poll()) is not None: connect(address)
        lookup.on_answer()                            # it was a learner's

    Args:
        find: gives the learner's address; its host may be a name.
    """

    def __init__(self, find: Callable[[], Address]) -> None:
        self._find = find
        self._thread: threading.Thread | None = None
        self._found: list[Address] | ServicesError = []
        self._last: Address | None = None
        self._answered = False

    def poll(self) -> Address | None:
        """Return the address to connect to now; None while it is looked up.

        Raises:
            AddressError: there is none now; the next call looks again.
            RunOverError: there will be none.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._look_up, name="lookup", daemon=True)
            self._thread.start()
        self._thread.join(_AT_ONCE_S)
        if self._thread.is_alive():
            return None
        self._thread = None
        if isinstance(self._found, ServicesError):
            raise self._found
        return self._choose(self._found)

    def on_answer(self) -> None:
        """The learner answered at the address given last: it stays the one."""
        self._answered = True

    def _choose(self, found: list[Address]) -> Address:
        at = found.index(self._last) if self._last in found else -1
        if at < 0 or not self._answered:
            at = (at + 1) % len(found)
        self._last, self._answered = found[at], False
        return found[at]

    def _look_up(self) -> None:
        try:
            self._found = self._find().resolved()
        except ServicesError as error:
            self._found = error
