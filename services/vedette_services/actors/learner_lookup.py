"""Looks up the learner's name, beside the loop that must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from vedette_services.errors import ServicesError
from vedette_services.net.addresses import Address

_AT_ONCE_S = 0.02  # an IP address takes less


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
            self._thread = threading.Thread(
                target=self._resolve_addresses, name="lookup", daemon=True
            )
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

    def _choose(self, addresses: list[Address]) -> Address:
        at = addresses.index(self._last) if self._last in addresses else -1
        if at < 0 or not self._answered:
            at = (at + 1) % len(addresses)
        self._last = addresses[at]
        self._answered = False
        return addresses[at]

    def _resolve_addresses(self) -> None:
        try:
            self._found = self._find().resolved()
        except ServicesError as error:
            self._found = error
