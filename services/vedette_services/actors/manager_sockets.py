"""The manager's sockets, and where they connect to."""

from __future__ import annotations

import logging
from collections.abc import Collection

import zmq

from vedette_protocol.codec import encode
from vedette_protocol.messages import Batch, Report
from vedette_protocol.topics import manager_topic
from vedette_services.actors.model_listener import ModelListener
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.handshake import EVENTS
from vedette_services.net.keys import ClientKeys

log = logging.getLogger("vedette.actors")


class ManagerSockets:
    """The manager's sockets: samples up, control and models down. They are replaced together."""

    def __init__(
        self,
        context: sockets.Context,
        address: Address,
        manager: str,
        keys: ClientKeys | None,
        other_ids: Collection[str] = (),
    ) -> None:
        """Connect.

        Args:
            other_ids: acks to these managers are received, too.
        """
        self._context = context
        self._address = address
        self._manager = manager
        self._keys = keys
        self.samples = sockets.samples_push(context, address, keys, EVENTS)
        self.monitor = self.samples.get_monitor_socket()
        subscriptions = [*sockets.manager_subscriptions(manager), *map(manager_topic, other_ids)]
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
