"""Self-contained HTML pages about one run, or about several in comparison."""

from vedette.reports.configurations import OUTCOME_HEADS, outcome_note, outcome_rows
from vedette.reports.writing import (
    export_numbers,
    remarks,
    report_statistics,
    write_comparison,
    write_report,
)

__all__ = [
    "OUTCOME_HEADS",
    "export_numbers",
    "outcome_note",
    "outcome_rows",
    "remarks",
    "report_statistics",
    "write_comparison",
    "write_report",
]
