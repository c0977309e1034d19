"""Self-contained HTML pages about one run, or about several in comparison."""

from vedette.reports.writing import write_report

__all__ = ["write_report"]
