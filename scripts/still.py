"""Draws docs/pictures/live.svg, the still of the live view, from statuses that were recorded.

vedette status --watch --json > docs/pictures/statuses.jsonl    while something worth showing runs
scripts/docs                                                    draws it, among other things
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from vedette.live.layout import Screen
from vedette.live.progress import Progress, ProgressTracker
from vedette_services.status.schema import decode
from vedette_services.status.status import Status
from vedette_services.status.text import run_title

WIDTH, HEIGHT = 104, 24


def still(recorded: str) -> str:
    """The SVG. It asks for no font from elsewhere: pages that show it would not fetch one.

    Args:
        recorded: statuses as JSON, a line each.
    """
    tracker, status, progress = ProgressTracker(), Status(), Progress()
    for line in recorded.splitlines():
        status = decode(Status, line.encode()) or Status()
        progress, _ = tracker.update(status)
    console = Console(file=io.StringIO(), width=WIDTH, record=True, force_terminal=True)
    hint = "?: what these words mean · Ctrl-C leaves"
    console.print(Screen(run_title(status), status, progress, height=HEIGHT, hint=hint))
    drawn = console.export_svg(title="vedette status --watch", theme=MONOKAI, unique_id="live")
    without_fonts = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.S)
    return without_fonts.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "live.svg").write_text(still((place / "statuses.jsonl").read_text("utf-8")))
