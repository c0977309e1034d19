"""The thread that syncs an outbox's files at intervals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from vedette_services.actors.outbox.files import OutboxFiles


@contextmanager
def synced_at_intervals(files: OutboxFiles, interval_s: float) -> Iterator[None]:
    """Sync every `interval_s` seconds, beside the manager; close the files at the end.

    A sync that takes longer than the interval delays the next one, and nothing else.
    """
    ended = threading.Event()

    def sync_often() -> None:
        while not ended.wait(interval_s):
            files.sync()

    thread = threading.Thread(target=sync_often, name="outbox", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        files.close()
