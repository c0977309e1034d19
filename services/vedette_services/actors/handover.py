"""Batches from an actor to its manager: slots in shared memory, and a byte for each.

One producer, one consumer, K slots used in turn. The actor writes its columns straight into a
slot's views and sends one byte over a socket pair: from then on the batch is the manager's. The
manager copies the payload out and sends a byte back: the slot is free. The kernel's socket is
what orders memory and what counts, so a reader never looks at a slot whose writer may still be in
it, on any processor, and a `kill -9` of the actor costs the slot it was writing and no other: the
bytes it sent are still there.

The memory has no name in any file system, so nothing is left behind however we die.

An actor in its manager's own process fills a slot of its own, too, and queues what is in it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vedette_protocol.frame_sharing import ENTRIES_BYTES, write_entries
from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_protocol.schema import Schema
from vedette_rl.core import Columns
from vedette_rl.storage.system import wait_readable
from vedette_services.config.parts import ActorsConfig
from vedette_services.errors import HandoverError
from vedette_services.host.system import anonymous_file

_HEADER = struct.Struct("<QQQQQ")  # rows, epoch, version, entries of what rows share, env steps
_ALIGNMENT = 64  # a slot begins on a cache line
_PAYLOAD_AT = _ALIGNMENT  # in a slot
_PUBLISHED = b"+"  # actor to manager: one more slot is written
_TAKEN = b"-"  # manager to actor: one more slot is free
_STOP = b"s"  # manager to actor: finish, hand over what you have, end
_MODEL = b"m"  # manager to actor: there is a first model now
_ALLOWED = struct.Struct("<QQQ")  # epoch, version, runs
_KEPT = 16  # batches of a queue that its manager does not empty


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch that an actor handed over: `rows` transitions, in bytes of their own.

    Args:
        env_steps: environment steps since the actor's last batch; None: as many as rows.
    """

    rows: int
    epoch: int
    version: int
    payload: bytes
    env_steps: int | None = None


class AllowedRuns(NamedTuple):
    """How many runs an actor may play on a model; on an older model it may begin none.

    Args:
        runs: on the model of this epoch and version; 0: any, on any model.
    """

    epoch: int = 0
    version: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The contents and the size of a slot; both ends compute them from the same.

    Args:
        schema: the schema of a batch.
        n_buffer: the most rows of a batch.
        bytes_max: the largest payload of a batch. Memory is taken as it is touched: a slot has room
            for as many entries as rows could share, whatever they mostly do.
    """

    schema: Schema
    n_buffer: int
    bytes_max: int = PAYLOAD_MAX_BYTES

    @property
    def entries(self) -> int:
        """Entries of what rows share, at most."""
        return self.schema.entries_max(self.n_buffer, self.bytes_max)

    @property
    def bytes(self) -> int:
        """The size of a slot."""
        size = _PAYLOAD_AT + self.schema.payload_bytes(self.n_buffer, self.entries)
        return -(-size // _ALIGNMENT) * _ALIGNMENT

    def memory_bytes(self, slots: int) -> int:
        """The size of so many slots, and of the `AllowedRuns` behind them."""
        return slots * self.bytes + _ALIGNMENT


def slot_layout(schema: Schema, actors: ActorsConfig) -> SlotLayout:
    """The slots of a run."""
    return SlotLayout(schema, actors.n_buffer, min(PAYLOAD_MAX_BYTES, actors.window_bytes))


class HandoverReader:
    """The manager's end. It owns the actor's descriptors, too, until `close_child_ends`."""

    def __init__(self, layout: SlotLayout, slots: int) -> None:
        self._layout = layout
        self._schema = layout.schema
        self._slots = slots
        self._slot_bytes = layout.bytes
        self._memory_fd = anonymous_file("vedette-handover")
        size = layout.memory_bytes(slots)
        os.ftruncate(self._memory_fd, size)
        self._memory = mmap.mmap(self._memory_fd, size)
        self._socket, self._actors_end = socket.socketpair()
        self._socket.setblocking(False)
        self._published = 0
        self._taken = 0
        self._announced = False
        self.ended = False  # the actor's end is closed: no more will be published

    @property
    def pass_fds(self) -> tuple[int, int]:
        """The actor's descriptors: memory, socket."""
        return self._memory_fd, self._actors_end.fileno()

    def close_child_ends(self) -> None:
        """Close the actor's descriptors once it is spawned, so that its death is seen."""
        self._actors_end.close()
        os.close(self._memory_fd)
        self._memory_fd = -1

    def fileno(self) -> int:
        """Readable when a batch was published or the actor is gone."""
        return self._socket.fileno()

    @property
    def ready_batches(self) -> int:
        """The number of batches that wait to be received."""
        return self._published - self._taken

    def poll(self) -> None:
        """Count the batches that the actor published; never waits."""
        while not self.ended:
            try:
                received = self._socket.recv(64)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it died with bytes of ours unread
                received = b""
            if not received:
                self.ended = True
            self._published += len(received)

    @property
    def next_bytes(self) -> int:
        """Bytes of the oldest batch's payload; at most a slot's, whatever its header says."""
        at = self._taken % self._slots * self._slot_bytes
        rows, _, _, entries, _ = _HEADER.unpack_from(self._memory, at)
        most = self._layout.n_buffer, self._layout.entries
        return self._schema.payload_bytes(min(rows, most[0]), min(entries, most[1]))

    def receive(self) -> FinishedBatch:
        """Copy the oldest batch out and free its slot.

        Raises:
            HandoverError: the slot holds nonsense; the actor must not be trusted further.
        """
        assert self.ready_batches > 0, "poll() says what is ready"
        if self.ready_batches > self._slots:
            raise HandoverError(f"{self.ready_batches} batches in {self._slots} slots")
        at = self._taken % self._slots * self._slot_bytes
        rows, epoch, version, entries, env_steps = _HEADER.unpack_from(self._memory, at)
        if not 0 < rows <= self._layout.n_buffer:
            raise HandoverError(f"a batch of {rows} rows, expected 1 to {self._layout.n_buffer}")
        if entries > self._layout.entries:
            raise HandoverError(f"{entries} entries in a slot for {self._layout.entries}")
        begin = at + _PAYLOAD_AT
        payload = self._memory[begin : begin + self._schema.payload_bytes(rows, entries)]
        self._taken += 1
        self._send_order(_TAKEN)
        return FinishedBatch(rows, epoch, version, payload, env_steps)

    def order_stop(self) -> None:
        """Ask the actor to hand over what it has and end."""
        self._send_order(_STOP)

    def announce_model(self) -> None:
        """Wake an actor that waits for its first model; later ones it finds by looking."""
        if not self._announced:
            self._announced = True
            self._send_order(_MODEL)

    def allow_runs(self, allowed: AllowedRuns) -> None:
        """Say how many runs the actor may play, which looks while it waits.

        It may read a moment's mixture of two, and then plays a run in vain or looks again.
        """
        _ALLOWED.pack_into(self._memory, self._slots * self._slot_bytes, *allowed)

    def discard(self) -> None:
        """Ignore all that this actor published or will publish."""
        self._taken = self._published
        self.ended = True

    def _send_order(self, order: bytes) -> None:
        # Never more than K + 2 bytes are unread, so the socket has room.
        try:
            self._socket.send(order)
        except (BrokenPipeError, ConnectionResetError):
            return  # a dead actor needs no orders; poll() sees its end after its last batch

    def close(self) -> None:
        """Release the memory and the socket. An actor that still runs ends by itself."""
        self._socket.close()
        if self._memory_fd >= 0:
            self.close_child_ends()
        self._memory.close()


class SlotMemory:
    """Slots in memory that an actor writes: their columns, and payloads laid out for their rows."""

    def __init__(self, memory: mmap.mmap, layout: SlotLayout, slots: int) -> None:
        self._memory = memory
        self._layout = layout
        self._schema = layout.schema
        self._full_views = [
            self._views(slot, layout.n_buffer, layout.entries) for slot in range(slots)
        ]

    def columns(self, slot: int) -> Columns:
        """The columns of a slot for a full batch: views to write into."""
        return self._full_views[slot]

    def lay_out(self, slot: int, rows: int, entries: int) -> None:
        """Move the first `rows` rows and the entries that they share to where a batch has them."""
        if rows < self._layout.n_buffer:
            self._lay_out_again(slot, rows, entries)
        elif self._schema.sharing is not None:
            self._close_gaps(slot, rows, entries)

    def payload(self, slot: int, rows: int, entries: int) -> bytes:
        """A copy of what was laid out."""
        begin = slot * self._layout.bytes + _PAYLOAD_AT
        return self._memory[begin : begin + self._schema.payload_bytes(rows, entries)]

    def _count(self, slot: int, rows: int, entries: int) -> None:
        """Write how many entries the payload has, behind its rows."""
        at = slot * self._layout.bytes + _PAYLOAD_AT + self._schema.payload_bytes(rows)
        write_entries(memoryview(self._memory), at - ENTRIES_BYTES, entries)

    def _close_gaps(self, slot: int, rows: int, entries: int) -> None:
        """Move the shared columns of a full batch together: where one begins depends on the entries
        of those before it."""
        assert self._schema.sharing is not None
        written = self._full_views[slot]
        views = self._views(slot, rows, entries)
        for name in self._schema.sharing.names[1:]:  # towards the front: none lies on a later one
            views[name][...] = written[name][:entries]

    def _views(self, slot: int, rows: int, entries: int) -> Columns:
        if self._schema.sharing is not None:
            self._count(slot, rows, entries)  # `Schema.views` reads it from the payload
        begin = slot * self._layout.bytes + _PAYLOAD_AT
        end = begin + self._schema.payload_bytes(rows, entries)
        # The schema alone knows where columns lie; its views may only be read: take their places.
        base = np.frombuffer(self._memory, np.uint8).ctypes.data
        views = self._schema.views(memoryview(self._memory)[begin:end], rows)
        return {
            name: np.ndarray(view.shape, view.dtype, self._memory, view.ctypes.data - base)
            for name, view in views.items()
        }

    def _lay_out_again(self, slot: int, rows: int, entries: int) -> None:
        """Move a partial batch together: where a column begins depends on the batch's rows."""
        shared = self._schema.sharing.names if self._schema.sharing else ()
        # Copied out first: a column's new place may lie on the old place of another.
        written = {
            name: column[: entries if name in shared else rows].copy()
            for name, column in self._full_views[slot].items()
        }
        for name, column in self._views(slot, rows, entries).items():
            column[...] = written[name]


class HandoverWriter:
    """The actor's end.

    ::

        while not handover.has_slot and not handover.gone: handover.poll(0.1)
        columns = handover.columns                 # views to write into
        handover.publish(rows, epoch, version, entries, env_steps)
        handover.poll(0.0); handover.stopped
    """

    def __init__(self, memory_fd: int, socket_fd: int, layout: SlotLayout, slots: int) -> None:
        self._slots = slots
        self._slot_bytes = layout.bytes
        self._memory = mmap.mmap(memory_fd, layout.memory_bytes(slots))
        os.close(memory_fd)
        self._slot_memory = SlotMemory(self._memory, layout, slots)
        self._socket = socket.socket(fileno=socket_fd)
        self._socket.setblocking(False)
        self._published = 0
        self._freed = 0
        self.stopped = False  # finish: an order, or the manager is gone
        self.gone = False  # the manager is gone
        self.model_announced = False

    @property
    def allowed_runs(self) -> AllowedRuns:
        """How many runs may be played."""
        return AllowedRuns(*_ALLOWED.unpack_from(self._memory, self._slots * self._slot_bytes))

    @property
    def has_slot(self) -> bool:
        """Return whether a slot is free to be written."""
        return self._published - self._freed < self._slots

    @property
    def columns(self) -> Columns:
        """The free slot's columns: views to write into, ``(n_buffer, *shape)``.

        A column that rows share has as many entries as there may be.
        """
        assert self.has_slot, "poll() until `has_slot`"
        return self._slot_memory.columns(self._published % self._slots)

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        """Hand over the slot's first `rows` rows and the entries they share: the manager's now."""
        slot = self._published % self._slots
        self._slot_memory.lay_out(slot, rows, entries)
        header = (rows, epoch, version, entries, env_steps)
        _HEADER.pack_into(self._memory, slot * self._slot_bytes, *header)
        self._published += 1
        try:
            self._socket.send(_PUBLISHED)
        except (BrokenPipeError, ConnectionResetError):
            self.stopped = self.gone = True

    def poll(self, wait_s: float) -> None:
        """Read the manager's orders, waiting at most `wait_s` for one."""
        if wait_s > 0:
            wait_readable(self._socket.fileno(), wait_s)
        try:
            orders = self._socket.recv(256)
        except BlockingIOError:
            return
        except ConnectionResetError:
            orders = b""
        if not orders:
            self.stopped = self.gone = True
        self._freed += orders.count(_TAKEN)
        self.stopped = self.stopped or _STOP in orders
        self.model_announced = self.model_announced or _MODEL in orders

    def close(self) -> None:
        """Close the socket: the manager sees the end of this actor."""
        self._socket.close()


class LocalHandover:
    """Both ends of a handover in one process: the slot's content is queued when it is published.

    An actor has room while fewer than `_KEPT` batches wait. Each time that the manager has taken
    half as many or more, and left none, it is room for twice as many, up to `slots`; once it has
    left some, for `_KEPT` again: it waits for credit, and what waits with it grows old.

    Args:
        waits: False: there is always room, as the manager drops batches for want of it.
    """

    def __init__(self, layout: SlotLayout, slots: int, *, waits: bool = True) -> None:
        memory = mmap.mmap(-1, layout.bytes)
        self._slot = SlotMemory(memory, layout, 1)
        self._slots = slots
        self._waits = waits
        self._most = min(slots, _KEPT)  # batches that may wait now
        self._received = 0  # batches since the manager's last look
        self._batches: deque[FinishedBatch] = deque()
        self._changed = threading.Condition()
        self._is_waiting = False  # the actor, for a change
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self.stopped = False  # finish: an order, or the manager is gone
        self.gone = False  # the manager is gone, or takes nothing any more
        self.ended = False  # no more will be published
        self.allowed_runs = AllowedRuns()

    # The actor's end

    @property
    def has_slot(self) -> bool:
        """Return whether there is room for a batch."""
        return not self._waits or len(self._batches) < self._most

    @property
    def columns(self) -> Columns:
        """The slot's columns: views to write into, ``(n_buffer, *shape)``."""
        return self._slot.columns(0)

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        """Queue the slot's first `rows` rows and the entries they share."""
        self._slot.lay_out(0, rows, entries)
        payload = self._slot.payload(0, rows, entries)
        if not self.gone:
            self._batches.append(FinishedBatch(rows, epoch, version, payload, env_steps))
            # Once, at half: before the actor has to wait, and each look of the manager takes
            # Python's lock from the actor's loop.
            if len(self._batches) == max(1, self._most // 2):
                self.wake_manager()

    def poll(self, wait_s: float) -> None:
        """Wait for the manager, at most `wait_s`, if there is no room."""
        if wait_s > 0:
            self.wake_manager()
            with self._changed:
                self._is_waiting = True
                self._changed.wait_for(lambda: self.has_slot or self.stopped, wait_s)
                self._is_waiting = False

    def stop_waiting(self) -> None:
        """Wait for room no more: what is left is handed over at once."""
        self._waits = False

    def wake_manager(self) -> None:
        """Have the manager look at once; otherwise it looks when it has time."""
        with contextlib.suppress(OSError):  # enough wake-ups are waiting, or the manager has ended
            self._wake_write.send(b"b")

    # The manager's end

    def fileno(self) -> int:
        """Readable when the manager is to look."""
        return self._wake_read.fileno()

    def wait_for_wakeup(self, wait_s: float, wait_with_some_s: float) -> None:
        """Wait until something is readable, at most `wait_s`, or `wait_with_some_s` if the manager
        has left batches; not if no actor publishes any more."""
        some = bool(self._batches)
        if some:
            self._most = min(self._slots, _KEPT)
        elif self._received >= self._most // 2:
            self._most = min(self._slots, 2 * self._most)
        self._received = 0
        if not self.ended:
            wait_readable(self._wake_read.fileno(), wait_with_some_s if some else wait_s)

    def clear_wakeups(self) -> None:
        """Nothing is readable any more."""
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)

    @property
    def ready_batches(self) -> int:
        """The number of batches that wait to be received."""
        return len(self._batches)

    @property
    def next_bytes(self) -> int:
        """Bytes of the oldest batch's payload."""
        return len(self._batches[0].payload)

    def receive(self) -> FinishedBatch:
        """The oldest batch."""
        batch = self._batches.popleft()
        self._received += 1
        self._notify()
        return batch

    def order_stop(self) -> None:
        """Ask the actor to hand over what it has and end."""
        self.stopped = True
        self._notify()

    def allow_runs(self, allowed: AllowedRuns) -> None:
        """Say how many runs the actor may play."""
        self.allowed_runs = allowed

    def discard(self) -> None:
        """Ignore all that this actor published or will publish."""
        self.stopped = self.gone = self.ended = True
        self._batches.clear()
        self._notify()

    def close(self) -> None:
        """Release the descriptors."""
        self._wake_read.close()
        self._wake_write.close()

    def _notify(self) -> None:
        if self._is_waiting:
            with self._changed:
                self._changed.notify_all()
