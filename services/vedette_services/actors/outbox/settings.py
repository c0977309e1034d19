"""What the operator of an actor's host says of its outbox."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vedette_rl.settings.plain_values import user_path
from vedette_services.actors.outbox.files import OutboxFiles
from vedette_services.errors import ArgumentError
from vedette_services.run.output_files import check_output

GIB: Final = 1 << 30
BYTES_LEAST: Final = 1 << 20
SYNC_LEAST_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """The folder of an outbox, and its bounds.

    They are no settings of the run: its learner does not say where another host writes.

    Args:
        directory: made if it is missing.
        max_bytes: of its files.
        sync_s: from one sync to the next: what a power failure of this host may take.

    Raises:
        ArgumentError: a bound is too small, or `directory` is no path.
    """

    directory: str | Path
    max_bytes: int = 4 * GIB
    sync_s: float = 0.1

    def __post_init__(self) -> None:
        given: object = self.directory
        if not isinstance(given, str | Path) or given == "":
            raise ArgumentError(f"outbox: it is the path of a folder, not {given!r}")
        if self.max_bytes < BYTES_LEAST:
            raise ArgumentError(
                f"an outbox of {self.max_bytes} bytes: it has at least {BYTES_LEAST}"
            )
        if not SYNC_LEAST_S <= self.sync_s < float("inf"):
            raise ArgumentError(
                f"an outbox that is synced every {self.sync_s} s: at least {SYNC_LEAST_S} s"
            )

    def open(self) -> OutboxFiles:
        """Open the folder, and read what is in it.

        Raises:
            UsageError: a run or a sweep keeps files of its own there.
            OutboxInUseError, OutboxFormatError, OutboxSystemError, OSError: as `OutboxFiles`.
        """
        directory = user_path(self.directory)
        check_output("outbox", directory)
        return OutboxFiles(directory, max_bytes=self.max_bytes)
