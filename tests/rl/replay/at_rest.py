"""A whole replay that nobody writes, in memory."""

from pathlib import Path

from vedette_rl.core.columns import Columns
from vedette_rl.replay.export import LiveRows


def live_columns(directory: Path) -> Columns:
    """Copies of all columns' live rows, oldest first."""
    with LiveRows(directory) as rows:
        return {name: rows.column(name) for name in rows.names}
