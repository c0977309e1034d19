"""Atomic replacement of files."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write_json(path: Path, content: object) -> None:
    """Write a JSON file such that a reader never sees half of it."""
    replace_file(path, json.dumps(content, indent=2) + "\n")


def replace_file(path: Path, text: str) -> None:
    """Write a text file aside and rename it, so that a reader never sees half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, "utf-8")
        aside.replace(path)
    except OSError as error:  # a full disk does not say which file it was
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)
