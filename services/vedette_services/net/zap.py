"""The ZAP handler (RFC 27): tells libzmq which keys are admitted.

It runs in the gateway's own context and loop. The sockets admit no peer while it does not answer.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Collection
from pathlib import Path

import zmq
from zmq.utils import z85

from vedette_services.errors import KeysError
from vedette_services.net.keys import ADMITTED, LEARNER, LearnerKeys, read_public
from vedette_services.net.sockets import ZAP_DOMAIN, Context

log = logging.getLogger("vedette.gateway")

POLL_EVERY_S = 1.0
"""The time from one look at the folder of admitted keys to the next."""

WARN_EVERY_S = 30.0
"""While that folder is missing."""

_ENDPOINT = "inproc://zeromq.zap.01"
_ANSWERS_A_TURN = 64
_ADMITTED_NOW = b"200"
_REFUSED = b"400"  # for good: a manager ends
_ADMITTED_MAX = 10_000

Signature = tuple[tuple[str, int, int, int], ...]


class ZapHandler:
    """Answers by the list of admitted keys, which it rereads when its folder changes.

    A folder that cannot be read admits whom it admitted last, and others get no answer: somebody
    may be replacing it. A handshake without an answer ends after seconds and is tried again; one
    that is refused ends a manager. A removed key is admitted until the next look misses it, too.

    Make it before the sockets it answers for.

    Args:
        now: seconds, monotonic.
    """

    def __init__(self, context: Context, keys: LearnerKeys, now: float) -> None:
        self._keys = keys
        self.socket = context.socket(zmq.ROUTER)  # not REP, which owes an answer
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(_ENDPOINT)
        self._names: dict[bytes, str] = {}  # who is let in, by public key (32 bytes)
        self._missed: dict[bytes, str] = {}  # of these, those that the last look did not find
        self._unreadable = ""  # why the folder cannot be read; "" while it can
        self._warn_at = now
        self._signature = self._look(now) or ()
        self._names = self._read()
        self._look_at = now + POLL_EVERY_S
        self.refused = 0
        self.last_refused = ""

    def answer_requests(self) -> None:
        """Answer the requests that wait, a bounded number of them."""
        for _ in range(_ANSWERS_A_TURN):
            try:
                sender, empty, *request = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if (answer := self._answer(request)) is not None:
                self.socket.send_multipart([sender, empty, *answer])

    def poll_removed_keys(self, now: float) -> set[str]:
        """Names whose key is no longer the one that was let in; looks at the folder now and then.

        Their connections are still open: that is the caller's to end.
        """
        if now < self._look_at:
            return set()
        self._look_at = now + POLL_EVERY_S
        signature = self._look(now)
        if signature is None or (signature == self._signature and not self._missed):
            return set()
        before = self._names
        self._signature = signature
        found = self._read()
        missed = {key: name for key, name in before.items() if key not in found}
        # Missed once, a file may be in the middle of being replaced.
        self._missed = {key: name for key, name in missed.items() if key not in self._missed}
        self._names = {**self._missed, **found}
        for name in sorted(set(self._names.values()) - set(before.values())):
            log.info("key %s is let in from now on", name)
        return {name for key, name in before.items() if self._names.get(key) != name}

    def _look(self, now: float) -> Signature | None:
        """Look at the folder; None where it cannot be read. Warns while it cannot."""
        try:
            signature = _folder_signature(self._keys.directory)
        except OSError as error:
            self._unreadable = error.strerror or str(error)
            if now >= self._warn_at:
                self._warn_at = now + WARN_EVERY_S
                log.warning(
                    "the folder of admitted keys cannot be read (%s: %s): the keys of before are "
                    "let in (%s), others wait; put it back, and remove a key by its file",
                    self._keys.directory / ADMITTED,
                    self._unreadable,
                    ", ".join(sorted(set(self._names.values()))) or "none",
                )
            return None
        if signature is not None and self._unreadable:
            log.info("the folder of admitted keys is there again")
            self._unreadable = ""
            self._warn_at = now
        return signature

    @property
    def names(self) -> frozenset[str]:
        """The names of those who are let in."""
        return frozenset(self._names.values())

    def names_of(self, keys: Collection[str]) -> frozenset[str]:
        """Return the names of those let in whose name or public key (Z85) is among `keys`."""
        named = ((name, z85.encode(key).decode()) for key, name in self._names.items())
        return frozenset(name for name, key in named if name in keys or key in keys)

    def close(self) -> None:
        self.socket.close(linger=0)

    def _answer(self, request: list[bytes]) -> list[bytes] | None:
        """Return the answer; None where there is none until the folder can be read."""
        version = request[0]
        request_id = request[1] if len(request) > 1 else b""
        code = _REFUSED
        message = b"not admitted"
        name = b""
        if len(request) == 7 and request[2] == ZAP_DOMAIN and request[5] == b"CURVE":
            known = self._names.get(request[6])
            if known is not None:
                code = _ADMITTED_NOW
                message = b"admitted"
                name = known.encode()
        if code == _REFUSED and self._unreadable:
            return None
        if code == _REFUSED:
            self.refused += 1
            address = request[3].decode("ascii", "replace")[:64] if len(request) > 3 else "?"
            self.last_refused = f"key {_shown(request[-1])} from {address} is not admitted"
        return [version, request_id, code, message, name, b""]

    def _read(self) -> dict[bytes, str]:
        """Read the keys of all sound files; a broken file admits no peer."""
        names: dict[bytes, str] = {}
        for name, *_ in self._signature[:_ADMITTED_MAX]:
            try:
                public_key = read_public(self._keys.directory / ADMITTED / name)
                if f"{public_key.name}.toml" != name or public_key.name == LEARNER:
                    raise KeysError(
                        name, f"names {public_key.name!r}", "call the file as its name says"
                    )
            except KeysError as error:
                if _is_out_of_files(error.__cause__):  # nothing is known of it: as it was before
                    names.update({k: n for k, n in self._names.items() if f"{n}.toml" == name})
                    self._signature = ()  # look again
                else:
                    log.warning("this key file lets nobody in, the others do: %s", error)
                continue
            names.setdefault(z85.decode(public_key.public), public_key.name)
        # Who has the learner's own secret is the learner's operator: its status, its local actors.
        names[z85.decode(self._keys.pair.public)] = LEARNER
        return names


def _is_out_of_files(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def _folder_signature(directory: Path) -> Signature | None:
    """Names, times and sizes of the files in the folder of admitted keys.

    None where it cannot be looked at because no descriptors are left: a flood of connections must
    not close everybody out.

    Raises:
        OSError: it is missing, or cannot be read.
    """
    try:
        with os.scandir(directory / ADMITTED) as entries:
            files = []
            for entry in entries:
                if not entry.name.endswith(".toml") or entry.name.startswith("."):
                    continue
                try:
                    stat = entry.stat()
                except OSError:
                    continue  # removed this moment
                files.append((entry.name, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    except OSError as error:
        if _is_out_of_files(error):
            return None
        raise
    return tuple(sorted(files))


def _shown(key: bytes) -> str:
    return f"{z85.encode(key).decode()[:8]}…" if len(key) == 32 else "of a strange length"
