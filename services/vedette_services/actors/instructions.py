"""The instructions of the manager's state to its daemon: a closed union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vedette_protocol.messages import Batch, Buffer, Report, Run
from vedette_services.actors.handover import AllowedRuns

Level: TypeAlias = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class SendReport:
    """Send this to the learner, or drop it: the next one says it all again."""

    report: Report


@dataclass(frozen=True, slots=True)
class SendBatches:
    """Send these to the learner; those that cannot be sent now go to `ManagerState.on_unsent`."""

    batches: Sequence[Batch]


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
    body: Buffer


@dataclass(frozen=True, slots=True)
class AllowRuns:
    """Tell every actor, and those that start later, how many runs they may play."""

    allowed: AllowedRuns


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
class InspectActor:
    """See where actor `index` stands, which makes no step, for `ManagerState.on_inspected`."""

    index: int


@dataclass(frozen=True, slots=True)
class KillActor:
    """Kill actor `index` now; what it had finished still counts."""

    index: int


@dataclass(frozen=True, slots=True)
class PlayEvaluation:
    """Have the evaluation's process play this model; start it if there is none.

    Args:
        fresh: the number of a fresh evaluation, which has episodes of its own; 0: the run's.
    """

    run: Run
    request: int
    model: StoreModel
    fresh: int = 0


@dataclass(frozen=True, slots=True)
class StopEvaluation:
    """Kill the evaluation's process, if there is one."""


@dataclass(frozen=True, slots=True)
class WriteLog:
    """A line for the log, of one actor where it names one."""

    level: Level
    text: str
    actor: int | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """The daemon is done: end every actor, send what is queued, leave with `code`."""

    code: int
    reason: str


Instruction: TypeAlias = (
    SendReport
    | SendBatches
    | RemakeSockets
    | RemakeModels
    | PrepareRun
    | StoreModel
    | AllowRuns
    | StartActor
    | StopActors
    | InspectActor
    | KillActor
    | PlayEvaluation
    | StopEvaluation
    | WriteLog
    | Exit
)
