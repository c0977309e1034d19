"""Views of a run: a live view on a terminal, a line every few seconds elsewhere."""

from vedette.live.views import LineView, View, print_once, print_table, view_for

__all__ = ["LineView", "View", "print_once", "print_table", "view_for"]
