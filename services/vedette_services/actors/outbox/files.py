"""The folder of an outbox: batches in files, with what is held in memory of them.

::

    files = OutboxFiles(directory, max_bytes=1 << 30)       # reads what is there
    session = files.begin(manager, run_id, schema, incarnation)
    if files.has_room(len(payload)):
        batch = files.append(session, actor, epoch, version, rows, env_steps, payload)
    files.sync()                                            # at intervals, in a thread of its own
    files.poll(now)                                         # what could not be written, once more
    files.read(session, batch)                              # its payload, to be sent
    files.mark_stored(session, batch)                       # the learner has it
    files.free_below(session, safe)                         # and keeps it
    files.close()

A session is one incarnation: a process's, in a run. It is a sequence of segments, which are deleted
whole. The process that began a session appends to it, and no other one: `begin` is called for a new
one, and `sessions` has what others have left. All calls come from one thread, but for `sync`.

No error of the disk is raised by `append`: a batch that cannot be written is held in memory, and
`failure` says why, until `poll` could write it.

The folder may go away, with its disk: `away` says why. Until it is back, batches are held in memory
alone, those in its files are kept and cannot be read, and nothing is written to what is in its
place. No batch is given up because it cannot be read then.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from vedette_protocol.packing import Buffer
from vedette_protocol.topics import is_id
from vedette_rl.number_format import format_bytes
from vedette_rl.storage.atomic_files import NO_ROOM, replace_file, sync_directory
from vedette_rl.storage.regular_files import read_bytes
from vedette_rl.storage.system import open_file, sync_mapped_file
from vedette_services.actors.outbox.folder import OutboxFolder
from vedette_services.actors.outbox.records import (
    RECORD_BYTES,
    Numbers,
    SegmentHeader,
    encode_header,
    encode_numbers,
    is_foreign,
    is_whole,
    read_segment,
)
from vedette_services.errors import OutboxFormatError, OutboxSystemError

_SUFFIX: Final = ".outbox"
_DAMAGED: Final = ".damaged"
_NAME: Final = re.compile(r"[0-9]{8}-[0-9a-f]{16}-[0-9]{6}\.outbox")
_MANAGER: Final = "manager"
_SEGMENT_BYTES: Final = 8 << 20
_SEGMENTS_LEAST: Final = 8  # of a full outbox: the oldest is dropped whole
_HEADER_BYTES: Final = 512  # of a segment that may have to be made for a batch
_RETRY_S: Final = 1.0  # from one attempt to write again to the next


@dataclass(slots=True, eq=False)
class SegmentFile:
    """A file of a session.

    Args:
        size: of what is whole in it.
        descriptor: to append; -1: nobody appends any more.
        live: the numbers whose newest record is in it, and that are held.
        is_deleted: by this process.
    """

    path: Path
    size: int
    descriptor: int = -1
    live: set[int] = field(default_factory=set)
    is_deleted: bool = False


@dataclass(slots=True, eq=False)
class HeldBatch:
    """A batch that is held.

    Args:
        size: of its payload in bytes.
        payload: None: it is read from its segment.
        segment: None: it could not be written, and is in memory alone.
        offset: of the payload in the segment.
        synced: the disk has it.
        stored: the learner that answers now has settled it.
        unread_since: it could not be read; the looks for the folder until then. -1: it could.
        added_at: monotonic seconds; 0 for one of a process before.
    """

    numbers: Numbers
    size: int
    payload: Buffer | None
    segment: SegmentFile | None
    offset: int
    synced: bool = False
    stored: bool = False
    unread_since: int = -1
    added_at: float = 0.0


@dataclass(slots=True, eq=False)
class Session:
    """What is held of one incarnation.

    Args:
        order: sessions of a folder have ascending ones.
        ended: nobody numbers it further.
        held: batches by number, ascending.
        base: the lowest number that is held.
        end: the next number.
        produced, dropped: rows, as in a report.
        unstored_batches, unstored_rows, unstored_bytes: of those held that are not stored.
    """

    manager: str
    run_id: str
    schema: str
    incarnation: int
    order: int
    ended: bool
    held: dict[int, HeldBatch] = field(default_factory=dict)
    base: int = 0
    end: int = 0
    produced: int = 0
    dropped: int = 0
    unstored_batches: int = 0
    unstored_rows: int = 0
    unstored_bytes: int = 0
    segments: list[SegmentFile] = field(default_factory=list)
    current: SegmentFile | None = None
    next_segment: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        return sum(segment.size for segment in self.segments)

    def forget(self, seq: int) -> None:
        """Hold a number no longer."""
        del self.held[seq]
        while self.base < self.end and self.base not in self.held:
            self.base += 1


class OutboxFiles:
    """The files of one folder, which one process uses at a time.

    Args:
        directory: it is made if it is missing.
        max_bytes: of all files together, and of what is in memory alone.
        memory_bytes: payloads that are kept in memory beside their files.

    Raises:
        OutboxInUseError: another process uses the folder.
        OutboxFormatError: a file is of a later release.
        OutboxLinkError: the folder is a link that leads nowhere.
        OutboxReadOnlyError: its disk takes no writes.
        OutboxSystemError: there is no outbox on this system.
        OSError: the folder cannot be made or read.
    """

    def __init__(self, directory: Path, *, max_bytes: int, memory_bytes: int = 64 << 20) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.failure: OSError | None = None
        """Why the last write failed; None: it did not."""
        self.sessions: list[Session] = []
        """Sessions with a file, oldest first."""
        self.bytes = 0
        """Bytes of all files."""
        self.away: OSError | None = None
        """Why the folder is not there; None: it is."""
        self.returns = 0
        """How often what could not be read may be there again."""
        self.faults: list[str] = []
        """What could not be read or deleted, a line each: whoever logs them takes them out."""
        self.damage: list[str] = []
        """The same of files that were damaged when the folder was read: each is to be logged."""
        self.bytes_in_memory_alone = 0
        self.memory_bytes_max = memory_bytes
        self._segment_bytes = min(_SEGMENT_BYTES, max(1, max_bytes // _SEGMENTS_LEAST))
        self._memory: deque[HeldBatch] = deque()  # with a payload, oldest first
        self._memory_bytes = 0
        self._unwritten: deque[tuple[Session, HeldBatch]] = deque()
        self._retry_at = float("-inf")
        self._reading: tuple[SegmentFile, int] | None = None  # the segment that was read last
        self._to_delete: list[Path] = []  # once what is to replace them is on the disk
        self._suspected_at: int | None = None  # the looks when a write failed as of a lost disk
        # Shared with the thread that syncs.
        self._lock = threading.Lock()
        self._dirty: set[SegmentFile] = set()
        self._closing: list[SegmentFile] = []  # to be closed once they are synced
        self._unsynced: list[tuple[Session, HeldBatch]] = []
        self._names_changed = True
        self._sync_failure: OSError | None = None
        self._is_doubtful = False  # something failed as it does where a disk is gone
        self._looks = 0  # for the folder, since something failed
        self._absence: OSError | None = None
        self._seen_looks = 0  # by the other thread
        self._sync_lock = threading.Lock()  # one sync at a time
        if not hasattr(os, "pread"):
            raise OutboxSystemError
        self._folder = OutboxFolder(directory)
        if why := self._folder.unlocked:
            self.faults.append(
                f"{directory}: a manager of another host is not kept out ({why}): see that none is "
                "started there; this one leaves the folder to it once it notices that"
            )
        try:
            self._read_all()
        except BaseException:
            self._folder.close()
            raise

    def manager_id(self, made: str) -> str:
        """Return the id that a manager without a given one has here: the same at each start.

        Args:
            made: the id to keep at the first one.
        """
        path = self.directory / _MANAGER
        kept = read_bytes(path).decode(errors="replace").strip() if path.exists() else ""
        if is_id(kept):
            return kept
        replace_file(path, f"{made}\n", durable=True)
        return made

    # What is appended

    def begin(self, manager: str, run_id: str, schema: str, incarnation: int) -> Session:
        """Begin a session: this process's, from now on."""
        order = max((session.order for session in self.sessions), default=0) + 1
        session = Session(manager, run_id, schema, incarnation, order, ended=False)
        self.sessions.append(session)
        return session

    def end(self, session: Session) -> None:
        """End a session: its process plays another run now, or ends."""
        session.ended = True
        self._end_segment(session)
        self._forget_empty(session)

    def has_room(self, payload_bytes: int) -> bool:
        """Return True if a batch of this size can be added without dropping another."""
        size = payload_bytes + RECORD_BYTES + _HEADER_BYTES
        if self._lacks_memory(payload_bytes):
            return False
        return self.bytes + self.bytes_in_memory_alone + size <= self.max_bytes

    def append(
        self,
        session: Session,
        actor: int,
        epoch: int,
        version: int,
        rows: int,
        env_steps: int,
        payload: Buffer,
    ) -> HeldBatch:
        """Give a batch the session's next number and write it; in memory alone where that fails."""
        session.produced += rows
        numbers = Numbers(
            session.end, actor, epoch, version, env_steps, rows, session.produced, session.dropped
        )
        batch = HeldBatch(numbers, len(payload), payload, None, 0)
        session.held[session.end] = batch
        session.end += 1
        session.unstored_batches += 1
        session.unstored_rows += rows
        session.unstored_bytes += batch.size
        if self.bytes_in_memory_alone or self.away is not None:  # those before it come first
            self._keep_in_memory_alone(session, batch)
        else:
            self._write_or_keep(session, batch)
        return batch

    def poll(self, now: float) -> None:
        """Write again what could not be written, and what a sync that failed was to write.

        The system counts pages as written that it could not write, so what they held goes into
        another segment.
        """
        self._note_absence()
        if self.away is not None:
            return
        self._delete_replaced()
        with self._lock:
            failure = self._sync_failure
            lost = self._unsynced if failure is not None else []
            if failure is not None:
                self._unsynced = []
                self._sync_failure = None
        if failure is not None:
            self._note_failure(failure)
            if lost and isinstance(failure, FileNotFoundError):  # writing again may succeed
                self.faults.append(
                    f"{failure.filename} was taken away: what is in memory of it is written again, "
                    "and what is not can be sent only where it is back"
                )
            self._write_elsewhere(lost)
        if not self._unwritten or now < self._retry_at:
            return
        self._retry_at = now + _RETRY_S
        for _ in range(len(self._unwritten)):
            session, batch = self._unwritten.popleft()
            if session.held.get(batch.numbers.seq) is not batch:
                continue  # dropped, or stored meanwhile
            self.bytes_in_memory_alone -= batch.size
            self._write_or_keep(session, batch)
            if batch.segment is None:
                self._unwritten.rotate(1)  # it was the oldest
                return
        for session in list(self.sessions):
            if session.ended and session.current is not None:
                self._end_segment(session)
                self._forget_empty(session)

    def sync(self) -> None:
        """Wait until the disk has what was appended before. Called from a thread of its own.

        A sync that fails is remembered: `poll` writes what it was to write once more.
        """
        with self._sync_lock:
            descriptors: list[int] = []
            failure: OSError | None = None
            if self._look() is not None:
                return  # `poll` has written again what is not known to be on the disk
            with self._lock:
                if self._sync_failure is not None:
                    return  # another sync would succeed without what that one has given up
                try:
                    for segment in self._dirty:
                        _check_place(segment)
                        descriptors.append(os.dup(segment.descriptor))
                except OSError as error:  # it was taken away, or no descriptor is left
                    failure = error
                self._dirty.clear()
                taken = self._unsynced
                self._unsynced = []
                names_changed = self._names_changed
                self._names_changed = False
            failure = self._sync_all(descriptors, names_changed) or failure
            with self._lock:
                if failure is None:
                    for _, batch in taken:
                        batch.synced = True
                else:
                    self._unsynced[:0] = taken
                    self._names_changed = self._names_changed or names_changed
                    self._sync_failure = failure
                    self._is_doubtful = self._is_doubtful or failure.errno not in NO_ROOM
                closing = self._closing
                self._closing = [segment for segment in closing if segment in self._dirty]
                for segment in closing:
                    if segment not in self._dirty:
                        _close(segment)

    def _sync_all(self, descriptors: list[int], names_changed: bool) -> OSError | None:
        failure = None
        try:
            for descriptor in descriptors:
                sync_mapped_file(descriptor)
            if names_changed:
                sync_directory(self.directory)
        except OSError as error:
            failure = error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return failure

    def _look(self) -> OSError | None:
        """Look whether the folder is there, and return why not."""
        with self._lock:
            is_doubtful = self._is_doubtful
        absence = self._folder.find_absence(doubtful=is_doubtful)
        with self._lock:
            self._absence = absence
            if absence is None and is_doubtful:
                self._is_doubtful = False
                self._looks += 1
        return absence

    # The folder goes, and comes back

    def _note_absence(self) -> None:
        """Take note of what the last look has found."""
        with self._lock:
            absence = self._absence
            looks = self._looks
        if absence is not None and self.away is None:
            self._go_away(absence)
        elif absence is None and self.away is not None:
            self.away = None
            self.returns += 1
        elif looks != self._seen_looks:
            self.returns += 1
        self._seen_looks = looks

    def _go_away(self, absence: OSError) -> None:
        self.away = absence
        self.failure = None
        with self._lock:
            lost = self._unsynced
            self._unsynced = []
            self._dirty.clear()
            self._sync_failure = None
            self._names_changed = True
            closing = self._closing
            self._closing = []
        for segment in closing:
            _close(segment)
        self._write_elsewhere(lost)
        self._stop_reading()

    def _write_elsewhere(self, lost: list[tuple[Session, HeldBatch]]) -> None:
        """Append no more to the current segments, and write batches again that these may not have:
        until then, they are in memory alone."""
        for session in self.sessions:
            if session.current is not None:
                self._end_segment(session)
        for session, batch in lost:
            if session.held.get(batch.numbers.seq) is batch and batch.segment is not None:
                self._memory_bytes -= batch.size
                self._leave_segment(session, batch)
                self._keep_in_memory_alone(session, batch)

    def _delete_replaced(self) -> None:
        """Delete what could not be deleted while the folder was away, once nothing needs it."""
        with self._lock:
            is_synced = not self._unsynced
        if self._to_delete and is_synced and not self._unwritten:
            for path in self._to_delete:
                self._delete(path)
            self._to_delete.clear()

    def _note_failure(self, error: OSError) -> None:
        """Note why a write failed. Where the disk may be gone, this waits for the next look."""
        if error.errno in NO_ROOM:
            self.failure = error
            return
        with self._lock:
            self._is_doubtful = True
            looks = self._looks
        if self._suspected_at is None:
            self._suspected_at = looks
        elif looks > self._suspected_at:
            self.failure = error

    @property
    def rows_in_files_alone(self) -> int:
        """Rows that are not stored, and can be sent only where their files can be read."""
        return sum(
            batch.numbers.rows
            for session in self.sessions
            for batch in session.held.values()
            if not batch.stored and batch.payload is None
        )

    @property
    def rows_in_memory_alone(self) -> int:
        """Rows that are lost if the process ends now, unless they are stored."""
        return sum(
            batch.numbers.rows
            for session, batch in self._unwritten
            if session.held.get(batch.numbers.seq) is batch
        )

    # What is sent and deleted

    def read(self, session: Session, batch: HeldBatch) -> Buffer:
        """Return a batch's payload.

        Raises:
            OSError: it cannot be read, or is not what was written.
        """
        if batch.payload is not None:
            return batch.payload
        if self.away is not None:
            raise self.away
        segment = batch.segment
        assert segment is not None, "what has no file is in memory"
        size = RECORD_BYTES + batch.size
        data = os.pread(self._open_to_read(segment), size, batch.offset - RECORD_BYTES)
        if not is_whole(data, batch.size):
            number = batch.numbers.seq
            raise OSError(errno.EBADMSG, f"batch {number} is damaged", str(segment.path))
        batch.unread_since = -1
        return memoryview(data)[RECORD_BYTES:]

    def may_be_read_later(self, batch: HeldBatch, error: OSError) -> bool:
        """Return True if a batch that `read` could not read is to be tried again after the next of
        `returns`: the folder is away, or was not looked for since."""
        if self.away is not None:
            return True
        if error.errno == errno.EBADMSG:
            return False
        with self._lock:
            looks = self._looks
            if -1 < batch.unread_since < looks:
                return False
            self._is_doubtful = True
        self._stop_reading()
        batch.unread_since = looks
        return True

    def mark_stored(self, session: Session, batch: HeldBatch) -> None:
        """Note that the learner has a batch. One that is in no file is not held any longer."""
        if batch.stored:
            return
        batch.stored = True
        self._count_unstored(session, batch, -1)
        self._leave_memory(batch)
        if batch.segment is None:
            self.bytes_in_memory_alone -= batch.size
            session.forget(batch.numbers.seq)
            self._forget_empty(session)

    def forget_stored(self, session: Session) -> None:
        """Note that another learner answers: what it has is not known."""
        for batch in session.held.values():
            if batch.stored:
                batch.stored = False
                self._count_unstored(session, batch, 1)

    def free_below(self, session: Session, number: int) -> None:
        """Delete the batches below a number: they are safe."""
        for seq in range(session.base, min(number, session.end)):
            batch = session.held.get(seq)
            if batch is not None:
                self._release(session, batch)

    def drop(self, session: Session, batch: HeldBatch) -> None:
        """Give a batch up: it is counted as dropped unless it is stored."""
        if not batch.stored:
            session.dropped += batch.numbers.rows
        self._release(session, batch)

    def give_up_unreadable(self, session: Session, batch: HeldBatch, error: OSError) -> None:
        """Give up a batch that `read` could not read: it is counted as dropped."""
        self.faults.append(
            f"{self.directory}: {batch.numbers.rows:,} samples cannot be read and are dropped: "
            f"{error.strerror or error}"
        )
        self.drop(session, batch)

    def make_room(self, payload_bytes: int, sessions: Iterable[Session]) -> int:
        """Drop the oldest segments of these sessions until there is room, if that is possible.

        First those go of which all is stored, though it is not safe. Where memory lacks room for
        what the disk does not take, files stay, and the oldest batches in memory alone go.

        Returns:
            The rows that were dropped and not stored.
        """
        if payload_bytes + RECORD_BYTES + _HEADER_BYTES > self.max_bytes:
            return 0
        given = list(sessions)
        before = sum(session.dropped for session in given)
        while self._lacks_memory(payload_bytes) and self._unwritten:
            self._drop_unwritten()
        for only_stored in (True, False):
            while not self.has_room(payload_bytes):
                victim = next(
                    (
                        (session, segment)
                        for session in given
                        for segment in session.segments
                        if not only_stored
                        or all(session.held[number].stored for number in segment.live)
                    ),
                    None,
                )
                if victim is None:
                    break
                self._drop_segment(*victim)
        while not self.has_room(payload_bytes) and self._unwritten:
            self._drop_unwritten()
        return sum(session.dropped for session in given) - before

    def close(self) -> None:
        """Sync, and leave the folder to other processes. Segments without a batch are deleted."""
        self.poll(math.inf)
        for session in list(self.sessions):
            self.end(session)
        self.sync()
        self.poll(math.inf)
        self._stop_reading()
        self._folder.close()

    # Inside

    def _write_or_keep(self, session: Session, batch: HeldBatch) -> None:
        try:
            self._write(session, batch)
        except OSError as error:
            self._note_failure(error)
            self._keep_in_memory_alone(session, batch)
        else:
            self.failure = None
            self._suspected_at = None

    def _write(self, session: Session, batch: HeldBatch) -> None:
        assert batch.payload is not None, "it was not written yet"
        segment = self._segment_for(session)
        record = encode_numbers(batch.numbers, batch.payload)
        size = len(record) + batch.size
        try:
            written = os.writev(segment.descriptor, (record, batch.payload))
            if written != size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(segment.path))
        except OSError:
            self._cut(session, segment)
            raise
        batch.segment = segment
        batch.offset = segment.size + len(record)
        segment.size += size
        segment.live.add(batch.numbers.seq)
        self.bytes += size
        self._memory.append(batch)
        self._memory_bytes += batch.size
        with self._lock:
            self._dirty.add(segment)
            self._unsynced.append((session, batch))
        self._trim_memory()

    def _segment_for(self, session: Session) -> SegmentFile:
        """Return the segment to append to."""
        if session.current is not None and session.current.size >= self._segment_bytes:
            self._end_segment(session)
        if session.current is None:
            session.current = self._make_segment(session)
        return session.current

    def _make_segment(self, session: Session) -> SegmentFile:
        header = encode_header(
            SegmentHeader(
                session.manager,
                session.run_id,
                session.schema,
                session.incarnation,
                session.end,
                session.produced,
                session.dropped,
            )
        )
        name = f"{session.order:08d}-{session.incarnation:016x}-{session.next_segment:06d}{_SUFFIX}"
        path = self.directory / name
        session.next_segment += 1  # also where a file of this name was put there
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            if os.write(descriptor, header) != len(header):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        segment = SegmentFile(path, len(header), descriptor)
        session.segments.append(segment)
        self.bytes += segment.size
        with self._lock:
            self._names_changed = True
        return segment

    def _cut(self, session: Session, segment: SegmentFile) -> None:
        """Cut off what a write that failed has left; where that fails, end the segment. One of
        which all is safe is deleted: it may be what has filled the disk."""
        try:
            os.ftruncate(segment.descriptor, segment.size)
        except OSError:
            self._end_segment(session)
        else:
            if not segment.live:
                self._end_segment(session)

    def _end_segment(self, session: Session) -> None:
        """Append no more to the current segment."""
        segment = session.current
        session.current = None
        if segment is None:
            return
        with self._lock:
            if segment in self._dirty:
                self._closing.append(segment)
            else:
                _close(segment)
        if not segment.live:
            self._unlink(session, segment)

    def _lacks_memory(self, payload_bytes: int) -> bool:
        """Return True if a batch does not fit beside those that are in memory alone."""
        alone = self.bytes_in_memory_alone
        return alone > 0 and alone + payload_bytes > self.memory_bytes_max

    def _drop_unwritten(self) -> None:
        """Drop the oldest batch that is in memory alone."""
        session, batch = self._unwritten.popleft()
        if session.held.get(batch.numbers.seq) is batch:
            self.drop(session, batch)

    def _drop_segment(self, session: Session, segment: SegmentFile) -> None:
        if session.current is segment:
            self._end_segment(session)
        for number in sorted(segment.live):
            self.drop(session, session.held[number])
        if segment in session.segments:  # it had no batch
            self._unlink(session, segment)

    def _release(self, session: Session, batch: HeldBatch) -> None:
        """Hold a batch no longer."""
        session.forget(batch.numbers.seq)
        if not batch.stored:
            self._count_unstored(session, batch, -1)
        self._leave_memory(batch)
        if batch.segment is not None:
            self._leave_segment(session, batch)
        else:
            self.bytes_in_memory_alone -= batch.size
        self._forget_empty(session)

    def _leave_segment(self, session: Session, batch: HeldBatch) -> None:
        segment = batch.segment
        assert segment is not None, "it has been written"
        batch.segment = None
        segment.live.discard(batch.numbers.seq)
        if not segment.live and segment is not session.current:
            self._unlink(session, segment)

    def _unlink(self, session: Session, segment: SegmentFile) -> None:
        session.segments.remove(segment)
        self.bytes -= segment.size
        if self._reading is not None and self._reading[0] is segment:
            self._stop_reading()
        segment.is_deleted = True
        if self.away is not None:
            self._to_delete.append(segment.path)
        else:
            self._delete(segment.path)

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self.faults.append(
                f"{path} cannot be deleted: {error.strerror or error}; nothing of it is needed, "
                "and it takes room"
            )

    def _stop_reading(self) -> None:
        if self._reading is not None:
            with contextlib.suppress(OSError):  # of a disk that is gone
                os.close(self._reading[1])
            self._reading = None

    def _forget_empty(self, session: Session) -> None:
        is_empty = session.ended and not session.held and not session.segments
        if is_empty and session in self.sessions:
            self.sessions.remove(session)

    def _keep_in_memory_alone(self, session: Session, batch: HeldBatch) -> None:
        self._unwritten.append((session, batch))
        self.bytes_in_memory_alone += batch.size

    def _count_unstored(self, session: Session, batch: HeldBatch, sign: int) -> None:
        session.unstored_batches += sign
        session.unstored_rows += sign * batch.numbers.rows
        session.unstored_bytes += sign * batch.size

    def _leave_memory(self, batch: HeldBatch) -> None:
        """Keep a payload no longer that is not to be sent, unless the disk lacks it."""
        if batch.synced and batch.payload is not None and batch.segment is not None:
            batch.payload = None
            self._memory_bytes -= batch.size

    def _trim_memory(self) -> None:
        """Keep payloads in memory as far as they fit, the newest ones."""
        memory = self._memory
        while memory and (memory[0].payload is None or self._memory_bytes > self.memory_bytes_max):
            batch = memory[0]
            if batch.payload is not None:
                if not batch.synced:
                    return
                batch.payload = None
                self._memory_bytes -= batch.size
            memory.popleft()

    def _open_to_read(self, segment: SegmentFile) -> int:
        if self._reading is not None and self._reading[0] is segment:
            return self._reading[1]
        self._stop_reading()
        descriptor = open_file(segment.path)
        self._reading = segment, descriptor
        return descriptor

    def _read_all(self) -> None:
        """Read what other processes have left, and bring it to the disk: the one that wrote it may
        not have come to that."""
        found: dict[tuple[int, int], Session] = {}
        for path in sorted(self.directory.iterdir()):
            if _NAME.fullmatch(path.name):
                self._read_segment(path, found)
        self.sessions = [found[key] for key in sorted(found)]
        for session in list(self.sessions):
            session.held = dict(sorted(session.held.items()))
            session.base = next(iter(session.held), session.end)
            # What was dropped is there again, where a power failure brought its file back.
            session.dropped = min(session.dropped, session.produced - session.unstored_rows)
            for segment in session.segments:
                descriptor = open_file(segment.path)
                try:
                    sync_mapped_file(descriptor)
                finally:
                    os.close(descriptor)
            for segment in [each for each in session.segments if not each.live]:
                self._unlink(session, segment)
            self._forget_empty(session)

    def _put_away(self, path: Path, data: bytes) -> None:
        """Delete a file whose making was cut off; keep one that had samples by another name."""
        if len(data) <= _HEADER_BYTES or not data.strip(b"\0"):
            path.unlink()
            return
        kept = path.with_suffix(_DAMAGED)
        path.replace(kept)
        self.damage.append(
            f"{path} does not begin as a file of an outbox: its samples "
            f"({format_bytes(len(data))}) are not sent, and it is now {kept.name}"
        )

    def _read_segment(self, path: Path, found: dict[tuple[int, int], Session]) -> None:
        data = read_bytes(path)
        if is_foreign(data):
            raise OutboxFormatError(path)
        header, records, whole_until, left_out = read_segment(data)
        if header is None:
            self._put_away(path, data)
            return
        if left_out:
            self.damage.append(
                f"{path} is not whole: from byte {whole_until:,} on, {format_bytes(left_out)} of "
                "samples are left out"
            )
        order = int(path.name.partition("-")[0])
        session = found.get((order, header.session))  # files of another host may lie here, too
        if session is None:
            manager, run_id, schema, incarnation, *_ = header
            session = Session(manager, run_id, schema, incarnation, order, ended=True)
            found[order, incarnation] = session
        segment = SegmentFile(path, len(data))
        session.segments.append(segment)
        self.bytes += len(data)
        session.end = max(session.end, header.end)
        session.produced = max(session.produced, header.produced)
        session.dropped = max(session.dropped, header.dropped)
        for numbers, offset, size in records:
            before = session.held.get(numbers.seq)
            if before is not None:  # written again, after a sync that failed
                assert before.segment is not None, "all have been read"
                before.segment.live.discard(numbers.seq)
                self._count_unstored(session, before, -1)
            batch = HeldBatch(numbers, size, None, segment, offset, synced=True)
            session.held[numbers.seq] = batch
            segment.live.add(numbers.seq)
            self._count_unstored(session, batch, 1)
            session.end = max(session.end, numbers.seq + 1)
            session.produced = max(session.produced, numbers.produced)
            session.dropped = max(session.dropped, numbers.dropped)


def _close(segment: SegmentFile) -> None:
    """Close a file that was appended to, and was synced, or is written again elsewhere."""
    with contextlib.suppress(OSError):  # of a disk that is gone
        os.close(segment.descriptor)
    segment.descriptor = -1


def _check_place(segment: SegmentFile) -> None:
    """Raise `OSError` if somebody has removed, renamed or replaced a file that is written to: no
    later process would find what is in it."""
    try:
        is_there = os.path.samestat(segment.path.stat(), os.fstat(segment.descriptor))
    except FileNotFoundError:
        is_there = False
    if not is_there and not segment.is_deleted:
        raise OSError(errno.ENOENT, "the file was taken away", str(segment.path))
