"""What the learner's processes tell each other: one small board each, written by one, read by all.

A board is a frozen dataclass in a memory map of `vedette_rl.storage.latest_value`: the newest value
wins, nobody waits for anybody, and a process that restarts rereads it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from vedette_rl.storage.latest_value import (
    SLOTS,
    LatestValueReader,
    LatestValueWriter,
    latest_value_file_bytes,
)

GONE_AFTER_S = 10.0  # silence after which a manager is shown as gone; it may still come back


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """What the trainer tells (it writes some fifty times a second at most).

    Args:
        epoch: the trainer's start on this run; 0 until it has one.
        opt_steps: optimization steps done, over all epochs: the model's version.
        sampled: rows drawn from the replay, over all epochs.
        phase: starting, waiting, training, or done.
        waits: why it waits, "" while it trains.
        exit_reason: why it is done, "" until then.
        opt_s, sample_s, wait_s: seconds spent optimizing, sampling and waiting in this epoch.
        opts: optimization steps of this epoch.
        seconds: since this start of the trainer.
        training_s: seconds since this epoch's first optimization step.
        lag_mean, lag_p95, lag_max: age in versions of the rows last drawn.
        record: the scalars last recorded by the agent.
        unsaved: why the last checkpoint is not on the disk; "" where it is, and until the end.
    """

    epoch: int = 0
    opt_steps: int = 0
    sampled: int = 0
    phase: str = "starting"
    waits: str = ""
    exit_reason: str = ""
    opt_s: float = 0.0
    sample_s: float = 0.0
    wait_s: float = 0.0
    opts: int = 0
    seconds: float = 0.0
    training_s: float = 0.0
    opt_steps_per_sec: float = 0.0
    lag_mean: float = 0.0
    lag_p95: float = 0.0
    lag_max: float = 0.0
    record: dict[str, float] = field(default_factory=dict)
    unsaved: str = ""


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """What the gateway tells: accounting, fleet and limiter (about 5 times a second).

    Args:
        samples: produced, inserted, duplicates, rejected, dropped, lost, in_flight: in transitions.
        managers: as in `status`.
        samples_per_sec: inserted, over the last seconds.
        limiter_reason: why actors are held back, "" while they are not.
        lag: mean, p95, max (versions) and seconds_mean of what was last inserted.
        garbage: messages refused whose sender is unknown.
        refused: keys that were not let in, ids claimed by a key that they do not belong to, and
            handshakes that did not succeed, or not yet: of scanners, idle connections.
        ended: the gateway has told everybody that the run is over and has drained.
        rejecting: why the last batch was rejected; "" where one has been inserted since.
    """

    samples: dict[str, int] = field(default_factory=dict)
    managers: list[dict[str, Any]] = field(default_factory=list)
    replay_size: int = 0
    replay_bytes: int = 0
    samples_per_sec: float = 0.0
    limiter_reason: str = ""
    lag: dict[str, float] = field(default_factory=dict)
    garbage: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    rejecting: str = ""


@dataclass(frozen=True, slots=True)
class EvaluatorStatus:
    """What the evaluator tells: the last evaluation and the best one.

    Args:
        count: evaluations done in this epoch.
        version: the model evaluated last; -1 before the first.
        return_min, return_max: of its worst and its best episode.
        playing: the version being evaluated now; -1 when none.
        best_version: the model with the best mean return; -1 before the first.
    """

    count: int = 0
    version: int = -1
    return_mean: float = 0.0
    return_std: float = 0.0
    return_min: float = 0.0
    return_max: float = 0.0
    length_mean: float = 0.0
    episodes: int = 0
    playing: int = -1
    best_return_mean: float = 0.0
    best_version: int = -1
    ended: bool = False


B = TypeVar("B", TrainerStatus, GatewayStatus, EvaluatorStatus)


_STATUS_RECORD_BYTES = {
    TrainerStatus: 256 << 10,
    GatewayStatus: 4 << 20,  # 1,000 managers of 16 actors fit
    EvaluatorStatus: 16 << 10,
}


def status_records_bytes() -> int:
    """What the maps of all boards take on disk."""
    return sum(latest_value_file_bytes(size, SLOTS) for size in _STATUS_RECORD_BYTES.values())


class StatusRecordWriter(Generic[B]):
    """The one writer of a board."""

    def __init__(self, path: Path, kind: type[B]) -> None:
        self._map = LatestValueWriter(path, _STATUS_RECORD_BYTES[kind])

    def write(self, board: B) -> None:
        """Make this the newest."""
        # Not `asdict`, which copies every manager's every field first.
        values = {field.name: getattr(board, field.name) for field in dataclasses.fields(board)}
        self._map.write(json.dumps(values).encode())

    def close(self) -> None:
        """Let somebody else be the writer; what was written stays."""
        self._map.close()


class StatusRecordReader(Generic[B]):
    """A reader of a board; an empty board until its writer has written."""

    def __init__(self, path: Path, kind: type[B]) -> None:
        self._map = LatestValueReader(path)
        self._kind: type[B] = kind
        self._seq = 0
        self._board: B = kind()

    def read(self) -> B:
        """The newest board; the same object as before while nothing new was written."""
        if self._map.seq != self._seq and (found := self._map.read()) is not None:
            self._seq, data = found
            self._board = self._kind(**json.loads(data))
        return self._board
