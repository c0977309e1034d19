"""What an actor that stands still waits for, as its stack shows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vedette_services.errors import is_user_code
from vedette_services.host.stack_request import StackFrame

_CALLS = {
    **dict.fromkeys(("step", "_step_each"), "step()"),
    **dict.fromkeys(("reset", "_reset_each"), "reset()"),
    **dict.fromkeys(("_make_env", "_made", "replace"), "its constructor"),
}
"""What is called in an environment, by our functions that call it."""

_CALLERS = ("vedette_rl/envs/", "vedette_services/host/env_workers.py")


def describe_standstill(frames: Sequence[StackFrame], limit_s: float) -> str:
    """Describe why an actor is killed that made no step within `limit_s`.

    Args:
        frames: its stack, the innermost call first; empty where that is not known.
    """
    call = next(
        (
            _CALLS[frame.function]
            for frame in frames
            if frame.function in _CALLS and any(place in frame.file for place in _CALLERS)
        ),
        "",
    )
    where = next((frame for frame in frames if is_user_code(frame.file)), None)
    at = f" (it is at {Path(where.file).name}:{where.line}, in {where.function})" if where else ""
    if not call:
        return f"made no step within {limit_s:g} s{at}: killed; actors.step_timeout_s is the limit"
    return (
        f"waits for {call} of an environment for more than {limit_s:g} s{at}: killed; "
        "raise actors.step_timeout_s where that may rightly take longer"
    )
