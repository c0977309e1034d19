"""Where in a user's own code an error comes from."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import vedette_protocol
import vedette_rl

_NOT_THEIRS = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(str(module.__file__)).parent) for module in (vedette_protocol, vedette_rl)}
    | {str(Path(__file__).parent)}
)


def place(error: BaseException) -> str:
    """The innermost line of code that is neither ours nor installed, as ``file.py:7, in step``; ""
    where there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.endswith(".py") and not frame.filename.startswith(_NOT_THEIRS):
            return f"{Path(frame.filename).name}:{frame.lineno}, in {frame.name}"
    return ""
