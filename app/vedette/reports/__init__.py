"""Self-contained HTML pages about one run, or about several in comparison."""

from vedette.reports.writing import report_statistics, write_report

__all__ = ["report_statistics", "write_report"]
