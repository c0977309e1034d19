"""The folder of an outbox: locked by its process, and known again after its disk was away.

::

    folder = OutboxFolder(directory)        # locks it
    folder.find_absence(doubtful=False)     # None: it is there; else why not
    folder.close()

A folder may be renamed, its disk unmounted, or a stick pulled out, while its process goes on. What
lies in its place then, such as an empty mount point, is not used: it has not this process's mark.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from typing import Final

from vedette_rl.storage.system import lock_file, sync_file
from vedette_services.errors import OutboxInUseError, OutboxLinkError, OutboxReadOnlyError
from vedette_services.run.shared_locks import describe_local_locks

_LOCK: Final = "lock"
_MARK_BYTES: Final = 64


class OutboxFolder:
    """Holds the lock of a folder, which has a random mark of this process.

    Args:
        directory: it is made if it is missing.

    Raises:
        OutboxInUseError: another process uses the folder.
        OutboxLinkError: the folder is a link that leads nowhere.
        OutboxReadOnlyError: its disk takes no writes.
        OSError: the folder cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        if directory.is_symlink() and not directory.exists():  # as of a disk that is not mounted
            raise OutboxLinkError(directory, directory.readlink())
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._path = directory / _LOCK
        try:
            self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            if error.errno == errno.EROFS:
                raise OutboxReadOnlyError(directory) from error
            raise
        self.unlocked = describe_local_locks(directory)
        """Why the lock may not keep a process of another host out; "": it does."""
        try:
            if not lock_file(self.descriptor):
                self.unlocked = "its file system has no locks"
        except BlockingIOError as error:
            os.close(self.descriptor)
            raise OutboxInUseError(directory) from error
        self._mark = secrets.token_hex(16).encode()
        try:
            self._write_mark()
        except OSError:  # the disk is full: then the lock's file alone is known again
            self._mark = b""

    def find_absence(self, *, doubtful: bool) -> OSError | None:
        """Return why the folder is not there; None: it is.

        Args:
            doubtful: something there could not be read or written. Of a disk that is gone the
                system may still know names and sizes, so something is written and synced.
        """
        try:
            found = self._path.stat()
            if not self._is_locked(found):
                self._lock_again()
            elif self._mark and os.pread(self.descriptor, _MARK_BYTES, 0) != self._mark:
                raise self._is_taken()  # by another host, where locks keep none out
            if doubtful:
                self._write_mark()
        except FileNotFoundError:
            return self._absence(self._directory.exists())
        except OSError as error:
            return error
        return None

    def close(self) -> None:
        """Leave the folder to other processes."""
        os.close(self.descriptor)

    def _write_mark(self) -> None:
        os.pwrite(self.descriptor, self._mark, 0)
        sync_file(self.descriptor)

    def _is_locked(self, found: os.stat_result) -> bool:
        try:
            return os.path.samestat(found, os.fstat(self.descriptor))
        except OSError:  # a disk that is gone, or mounted again
            return False

    def _lock_again(self) -> None:
        """Lock what has this process's mark: the same folder, after its disk was mounted again.

        Raises:
            OSError: it is another one, or another process has it.
        """
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            if not self._mark or os.pread(descriptor, _MARK_BYTES, 0) != self._mark:
                raise self._absence(is_other=True)
            lock_file(descriptor)
        except BlockingIOError as error:
            os.close(descriptor)
            raise self._is_taken() from error
        except BaseException:
            os.close(descriptor)
            raise
        before = self.descriptor
        self.descriptor = descriptor
        with contextlib.suppress(OSError):  # of a disk that is gone
            os.close(before)

    def _is_taken(self) -> OSError:
        return OSError(errno.EBUSY, "another manager uses it now", str(self._directory))

    def _absence(self, is_other: bool) -> OSError:
        why = "another folder is in its place" if is_other else "it is not there"
        return OSError(errno.ENOENT, why, str(self._directory))
