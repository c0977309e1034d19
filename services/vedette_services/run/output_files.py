"""The files that commands make where the user says: none takes the place of what a run or a sweep
keeps."""

from __future__ import annotations

from pathlib import Path

from vedette_services.errors import UsageError
from vedette_services.run.run_files import find_writing_run
from vedette_services.run.sweep_files import find_writing_sweep


def check_output(option: str, place: Path, own: Path | None = None) -> None:
    """Refuse to write over the files of a run or a sweep, or among them.

    Args:
        option: the one that names `place`.
        place: the file or folder to write; it need not exist.
        own: the one file of a run that this command writes; None: there is none.

    Raises:
        UsageError: names the run or sweep, and the fix.
    """
    if own is not None and place.resolve() == own.resolve():
        return
    for kind, owner in (("run", find_writing_run(place)), ("sweep", find_writing_sweep(place))):
        if owner is not None:
            why = f"the {kind} {owner} keeps files of its own there"
            raise UsageError(f"{option} {place}: {why}; name another place")
