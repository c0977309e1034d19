"""Reports as files: of one run, or of several beside one another."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from vedette.reports.comparison import comparison_page
from vedette.reports.one_run import run_page
from vedette.reports.record import RunRecord, read_record, runs_below
from vedette_rl.storage.atomic_files import replace_file
from vedette_services.errors import SettingError
from vedette_services.run.directory import REPORT_FILE


def write_report(runs: Iterable[str | Path], out: str | Path | None = None) -> Path:
    """Write a page about runs: about one all that is known, about several how they compare.

    Runs that differ in nothing but their seed are shown as one mean with its interval.

    Args:
        runs: run directories, or folders of them, finished or not.
        out: the file. None: ``report.html`` in the run's directory or in the one folder given,
            otherwise here.

    Returns:
        The file.

    Raises:
        NotARunError: one of them holds no run.
        SettingError: the file cannot be written.
    """
    given = [Path(run) for run in runs]
    path = Path(out) if out is not None else default_file(given)
    command = shlex.join(["vedette", "report", *map(str, given)])
    page = report_html(read_records(given), command)
    try:
        replace_file(path, page)
    except OSError as error:
        raise SettingError(
            f"--out {path}", error.strerror or str(error), "name a file in a folder to write to"
        ) from error
    return path


def default_file(given: list[Path]) -> Path:
    """Where a report goes that nobody named."""
    return given[0] / REPORT_FILE if len(given) == 1 else Path(REPORT_FILE)


def read_records(given: Iterable[Path]) -> list[RunRecord]:
    """Every run that was named, those in folders too, each once.

    Raises:
        NotARunError: one of them holds no run.
    """
    found = [run for directory in given for run in runs_below(directory)]
    unique = {run.resolve(): run for run in found}
    return [read_record(run) for run in unique.values()]


def report_html(records: list[RunRecord], command: str) -> str:
    """The page about these runs, which a command writes again."""
    if len(records) == 1:
        return run_page(records[0], command)
    return comparison_page(records, command)
