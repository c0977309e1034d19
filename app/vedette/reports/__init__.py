"""One HTML page about a run, or about several beside one another. It needs nothing but itself."""

from vedette.reports.writing import report_html, write_report

__all__ = ["report_html", "write_report"]
