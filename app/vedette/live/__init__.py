"""What a person sees of a run: a live view on a terminal, one line every few seconds elsewhere."""

from vedette.live.views import LineView, QuietView, View, print_once, view_for

__all__ = ["LineView", "QuietView", "View", "print_once", "view_for"]
