"""A manager's state without a network, and shorthand for what happens to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from vedette_protocol.column import Column
from vedette_protocol.messages import Ack, Report, Run
from vedette_protocol.model import CompleteModel
from vedette_protocol.schema import Schema
from vedette_services.actors.connection import Identity
from vedette_services.actors.handover import FinishedBatch
from vedette_services.actors.instructions import (
    Instruction,
    SendBatches,
    SendReport,
    WriteLog,
)
from vedette_services.actors.manager_state import ManagerState
from vedette_services.actors.outbox.files import OutboxFiles

SCHEMA = Schema((Column("reward", "f4"),))
MODEL = Schema((Column("w", "f4", (3,)),))
ROWS = 4
RUN = Run(
    "r1", 1, 77, SCHEMA, MODEL, {"id": "CartPole-v1"}, {"name": "dqn"}, {"n_buffer": 4}, 0, 4, 8
)
T = TypeVar("T")


def of(kind: type[T], instructions: Iterable[Instruction]) -> list[T]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def logged_text(instructions: Iterable[Instruction]) -> str:
    return "\n".join(say.text for say in of(WriteLog, instructions))


class Rig:
    """A state, and shorthand for what happens to it."""

    def __init__(
        self,
        count: int | None = 2,
        wait_s: float = 0.0,
        outbox: OutboxFiles | None = None,
        first_incarnation: int = 100,
        **actors: Any,
    ) -> None:
        self.incarnations = iter(range(first_incarnation, first_incarnation + 100))
        self.state = ManagerState(
            Identity("m1", "host", "far:5555"),
            count=count,
            allow_import=("my_pkg",),
            incarnation=lambda: next(self.incarnations),
            jitter=lambda: 0.5,
            now=0.0,
            wait_s=wait_s,
            evaluates=True,
            outbox=outbox,
        )
        self.run = replace(RUN, actors={**RUN.actors, **actors})
        self.now = 0.0

    def joined(self, credit: int = 8) -> Rig:
        """Connected, with the run announced, acknowledged once and its actors started."""
        self.state.on_connected(self.now)
        self.state.on_control(self.run, self.now)
        self.ack(credit=credit)
        return self

    def ack(self, contiguous: int = 0, credit: int = 8, **fields: Any) -> list[Instruction]:
        ack = Ack(
            self.run.run_id,
            self.run.epoch,
            self.run.learner,
            "m1",
            100,
            contiguous,
            0,
            0,
            0,
            contiguous + credit,
            0,
            10,
            "" if credit else "the learner waits",
        )
        return self.state.on_control(replace(ack, **fields), self.now)

    def batch(self, index: int = 0) -> list[Instruction]:
        payload = bytes(SCHEMA.payload_bytes(ROWS))
        return self.state.on_batch(index, self.run, FinishedBatch(ROWS, 1, 5, payload), self.now)

    def tick(self, to: float, every: float = 0.5) -> list[Instruction]:
        done: list[Instruction] = []
        while self.now < to:
            self.now = min(to, self.now + every)
            done += self.state.on_tick(self.now)
        return done

    def exited(self, index: int, code: int = 0, cause: str = "", trace: str = "") -> list[Any]:
        return self.state.on_actor_exited(index, code, cause, trace, self.now)


def sent(instructions: Iterable[Instruction]) -> list[int]:
    """Sequence numbers of the batches sent."""
    return [batch.seq for send in of(SendBatches, instructions) for batch in send.batches]


def last_report(instructions: Iterable[Instruction]) -> Report:
    return of(SendReport, instructions)[-1].report


def a_model(version: int, *, epoch: int = 1, run_id: str = "r1", spec: str = "") -> CompleteModel:
    body = version.to_bytes(8, "little") + MODEL.pack({"w": np.ones((1, 3), np.float32)}, 1)
    return CompleteModel(run_id, epoch, version, spec or MODEL.hash, bytearray(body))
