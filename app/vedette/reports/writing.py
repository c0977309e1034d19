"""Writes reports to files: the page about one run, or the comparison of several."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from vedette.reports.comparison import comparison_page
from vedette.reports.one_run import run_page
from vedette.reports.record import read_record, runs_below
from vedette_rl.storage.atomic_files import replace_file
from vedette_services.errors import SettingError
from vedette_services.run.directory import REPORT_FILE


def write_report(runs: Iterable[str | Path], out: str | Path | None = None) -> Path:
    """Write a page with everything known about one run, or with a comparison of several.

    Runs that differ only in their seed are shown as one mean with its interval.

    Args:
        runs: run directories, or folders of them, finished or not.
        out: the file. None: ``report.html`` in the directory if one is given, else in the current
            directory.

    Returns:
        The file.

    Raises:
        NotARunError: one of them holds no run.
        SettingError: the file cannot be written.
    """
    given = [Path(run) for run in runs]
    path = given[0] / REPORT_FILE if len(given) == 1 else Path(REPORT_FILE)
    path = path if out is None else Path(out)
    found = {run.resolve(): run for directory in given for run in runs_below(directory)}
    records = [read_record(run) for run in found.values()]
    command = shlex.join(["vedette", "report", *map(str, given)])
    page = run_page(records[0], command) if len(records) == 1 else comparison_page(records, command)
    try:
        replace_file(path, page)
    except OSError as error:
        raise SettingError(
            f"--out {path}", error.strerror or str(error), "name a file in a folder to write to"
        ) from error
    return path
