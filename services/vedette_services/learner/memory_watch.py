"""What the gateway may hold in memory, lest a peer fill the host with a message without end.

libzmq bounds a frame and the number of messages, not the frames of one message. Nothing in the
gateway can: whoever it serves is answered only between messages. Ending it costs nothing but the
moment of its restart, because it keeps no state that it could not reread.
"""

from __future__ import annotations

from pathlib import Path

from vedette_services.learner.limits import FlightLimits

_OWN_BYTES = 512 << 20  # interpreter, libraries, connections, statuses on their way
_MODELS = 8  # bodies: the map's copy, the one going out, and those queued for slow readers


def gateway_limit(model_map_bytes: int, limits: FlightLimits | None = None) -> int:
    """Bytes that a gateway may hold: twice what all managers may have in flight, and its own.

    Args:
        model_map_bytes: of the map that models come in, which has room for three.
    """
    payload_bytes = (limits or FlightLimits()).payload_bytes
    return _OWN_BYTES + 2 * payload_bytes + _MODELS * model_map_bytes // 3


def private_bytes(pid: int) -> int:
    """Bytes in memory that are a process's own, without the files that it maps.

    0 where the system does not say (it is not Linux), or the process is gone.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def file_bytes(path: Path) -> int:
    """The size of a file, 0 while there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
