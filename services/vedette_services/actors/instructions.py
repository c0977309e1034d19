"""What the manager's state tells its shell to do: a closed union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vedette_protocol.messages import Run

Level: TypeAlias = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Send:
    """Send these frames to the learner; if they cannot be sent now, drop them (acks bring them
    back)."""

    frames: Sequence[bytes | bytearray | memoryview]


@dataclass(frozen=True, slots=True)
class RemakeSockets:
    """Close every socket now and open them again in `delay_s`."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class RemakeModels:
    """Close the models' socket and open it again: its subscription asks for the newest model."""


@dataclass(frozen=True, slots=True)
class PrepareRun:
    """A run begins here: make an empty map for its models."""

    run: Run


@dataclass(frozen=True, slots=True)
class StoreModel:
    """Put this model where the actors look for it."""

    epoch: int
    version: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class StartActor:
    """Start actor `index` on the run prepared last."""

    index: int
    number: int
    restarts: int
    run: Run


@dataclass(frozen=True, slots=True)
class StopActors:
    """Ask every actor to hand over what it has and end."""


@dataclass(frozen=True, slots=True)
class KillActor:
    """Kill actor `index` now; what it had finished still counts."""

    index: int


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the log."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """The daemon is done: end every actor, send what is queued, leave with `code`."""

    code: int
    reason: str


Instruction: TypeAlias = (
    Send
    | RemakeSockets
    | RemakeModels
    | PrepareRun
    | StoreModel
    | StartActor
    | StopActors
    | KillActor
    | Say
    | Exit
)
