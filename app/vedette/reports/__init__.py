"""Self-contained HTML pages about one run, or about several in comparison."""

from vedette.reports.configurations import OUTCOME_HEADS, outcome_of
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
    "outcome_of",
    "remarks",
    "report_statistics",
    "write_comparison",
    "write_report",
]
