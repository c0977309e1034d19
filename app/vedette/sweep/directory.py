"""The directory of a sweep: whose it is.

A sweep writes runs into folders of their own, and its files (`run/sweep_files.py`) and a report
beside them. It takes a new or an empty folder, one of a sweep, or one in which runs lie.
"""

from __future__ import annotations

from pathlib import Path

from vedette_services.errors import SettingError
from vedette_services.run.checks import check_writable
from vedette_services.run.directory import REPORT_FILE, RunDirectory
from vedette_services.run.finding import find_runs, is_run
from vedette_services.run.run_files import check_report_file, entries_of_others
from vedette_services.run.sweep_files import has_sweep_files


def check_sweep_directory(out: Path) -> None:
    """Refuse a directory that cannot be written, or that is neither a sweep's nor empty.

    Raises:
        SettingError: gives the reason.
    """
    check_writable(out)
    if not out.is_dir():
        return
    check_report_file(out / REPORT_FILE)
    runs = find_runs(out)
    if is_run(out) and runs == [out]:  # seeds that lie below a run go on
        fix = "name another folder for several seeds"
        raise SettingError(f"--out {out}", "it already contains a single run", fix)
    others = entries_of_others(out)
    if others and not runs and not _is_sweep(out):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        why = f"it holds {others[0]!r}{more}, and no run of ours"
        raise SettingError(f"--out {out}", why, "name a new or an empty folder")


def _is_sweep(out: Path) -> bool:
    """Return True for a sweep that was killed before its first run began to train."""
    if any(RunDirectory(place).is_ours for place in out.iterdir()):
        return True
    return has_sweep_files(out)
