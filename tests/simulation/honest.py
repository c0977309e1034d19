"""The honest side: a manager that is watched, and actors that make numbered rows."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from counting_ring import InvariantError  # beside this file
from machine import Machine
from scenario import id_of
from wait_reasons import ManagerWaits

from vedette_protocol.column import Column
from vedette_protocol.messages import Ack, Buffer, ControlMessage, EvaluationReport
from vedette_protocol.schema import Schema
from vedette_services.actors.actor_stats import ActorStats
from vedette_services.actors.handover import AllowedRuns, FinishedBatch
from vedette_services.actors.instructions import (
    Exit,
    Instruction,
    PlayEvaluation,
    PrepareRun,
    SendBatches,
    StartActor,
    StoreModel,
    WriteLog,
)
from vedette_services.errors import REFUSED
from vedette_services.simulation.hosts import ManagerHost

if TYPE_CHECKING:
    from simulated_fleet import SimulatedFleet

SCHEMA = Schema((Column("number", "i8", ()), Column("reward", "f8", ())))


def pack_rows(first: int, rows: int) -> bytes:
    """Pack rows with successive numbers as a payload of `SCHEMA`."""
    return np.arange(first, first + rows).tobytes() + bytes(8 * rows)


class NumberingActor:
    """Makes batches of rows that are numbered through over the whole fleet."""

    def __init__(self, fleet: SimulatedFleet, host: HonestHost, order: StartActor) -> None:
        self._fleet = fleet
        self._host = host
        self._order = order
        self._plays = False
        self._here = True
        self._env_steps = 0
        self._told = float("-inf")
        self.made: tuple[int, FinishedBatch] | None = None  # not handed over yet: its first row

    def store(self, model: StoreModel) -> None:
        if not self._plays:
            self._plays = True
            self._play()

    def allow_runs(self, allowed: AllowedRuns) -> None:
        """Go on: `strict_world` has the actors that wait for models."""
        assert not allowed.runs

    def _play(self) -> None:
        """Hand the last batch over, or the next one; what has to wait is tried again."""
        if not self._here:
            return
        host = self._host
        fleet = self._fleet
        if self.made is None:
            self.made = fleet.make_batch()
        first, batch = self.made
        taken = host.offer(self._order.index, self._order.run, batch)
        if taken:
            self._env_steps += batch.rows
            host.handed[first] = batch.rows
            self.made = None
        if host.clock.now - self._told > 2.0:
            self._told = host.clock.now
            state: Any = "playing" if taken else "waiting for room"
            host.on_stats(self._order.index, ActorStats(state, max(1, self._env_steps)))
        gap_s = host.rng.uniform(*fleet.scenario.batch_gap_s)
        host.clock.call_at(host.clock.now + gap_s, self._play)

    def stop(self) -> None:
        self.kill()
        exited = partial(self._host.on_exited, self._order.index)
        self._host.clock.call_at(self._host.clock.now, exited)

    def kill(self) -> None:
        self._here = False
        if self.made is not None:
            self._fleet.disk.excuse(self.made[0], self.made[1].rows)


EPISODES = 3


def mark_of(body: Buffer) -> float:
    """Return a number by which a model is known again, in place of an episode's length."""
    return 1.0 + zlib.crc32(body)


def play_evaluation(host: HonestHost, order: PlayEvaluation, ended: int = 0) -> None:
    """Play an episode after the other. The return is the version, by which it is known again."""
    fleet = host.fleet
    model = order.model
    hangs = host.rng.random() < (fleet.scenario.evaluates or 0.0)
    if hangs and ended == 0 and fleet.clock.now < fleet.scenario.fault_s:
        return
    found = EvaluationReport(order.request, model.epoch, model.version, ended)
    if ended == EPISODES:
        mean = float(model.version)
        found = replace(
            found,
            return_mean=mean,
            return_std=0.0,
            return_min=mean,
            return_max=mean,
            length_mean=mark_of(model.body),
        )
    host.on_evaluation(found)
    if ended < EPISODES:
        at = host.clock.now + host.rng.uniform(0.05, 1.0)
        host.clock.call_at(at, partial(play_evaluation, host, order, ended + 1))


class HonestHost(ManagerHost[NumberingActor]):
    """A manager as shipped, with a record of what it handed over and was told."""

    def __init__(self, fleet: SimulatedFleet, machine: Machine, seed: int) -> None:
        self.fleet = fleet
        self.machine = machine
        self.rng = random.Random(seed)
        self.handed: dict[int, int] = {}  # first row -> rows, until they are committed
        self.lost_rows = 0  # handed over, and neither committed nor held
        self.unsound_rows = 0  # of these, of invalid batches
        self.limit = 0  # the highest that an ack gave
        self.waits = ManagerWaits(fleet.clock.now)
        self.reason_at = float("-inf")
        self.refused = False
        self.settled_at_heal = 0
        self.settled = 0
        self.settled_at = fleet.clock.now
        super().__init__(
            id_of(machine.name),
            machine,  # type: ignore[arg-type]  # it stands between the manager and the network
            partial(NumberingActor, fleet),  # type: ignore[arg-type]  # of this very class
            seed=seed,
            who=(f"host-of-{machine.name}", "memory"),
            count=fleet.scenario.actors.count,
            tick_s=fleet.scenario.tick_s,
            evaluate=None if fleet.scenario.evaluates is None else play_evaluation,  # type: ignore[arg-type]  # of this very class
        )
        inner = self.state.on_control

        def on_control(message: ControlMessage, now: float) -> list[Instruction]:
            self._on_control(message)
            return inner(message, now)

        self.state.on_control = on_control  # type: ignore[method-assign]

    def _on_control(self, message: ControlMessage) -> None:
        state = self.state
        now = self.fleet.clock.now
        ours = isinstance(message, Ack) and (
            (message.incarnation, message.run_id) == (state._incarnation, state.current_run[0])
        )
        joined = self.window is not None or bool(state._leaving)
        self.waits.on_control(message, now, joined=joined, ours=ours)
        if isinstance(message, Ack) and ours:
            self.limit = max(self.limit, message.limit)
            if message.reason:
                self.reason_at = now

    def _execute(self, instruction: Instruction) -> None:
        fleet = self.fleet
        now = self.fleet.clock.now
        match instruction:
            case PrepareRun():
                self.waits.on_model(now)
            case StoreModel():
                self.waits.on_model(None)
            case SendBatches(batches):
                for batch in batches:
                    if batch.seq >= self.limit:
                        text = f"{self.name} sends batch {batch.seq}, its limit is {self.limit}"
                        raise InvariantError(text)
            case WriteLog(level, text):
                if self.waits.on_line(text, now):
                    self.reason_at = now
                if fleet.trace:
                    fleet.trace(f"{self.machine.name:6} {level}: {text}")
                return
            case Exit(code, text):
                if fleet.trace:
                    fleet.trace(f"{self.machine.name:6} exits with {code}: {text}")
                if code == REFUSED and self.exit is None:
                    fleet.invariants.on_refused(self, text)
                    self.exit = instruction
                    self.kill()
        super()._execute(instruction)

    # What it holds

    @property
    def window(self) -> Any:
        """Its window, with the parts that only it should know; None before a run."""
        return self.state._window

    def held(self) -> set[int]:
        """Return the first rows of the batches in its window."""
        window = self.window
        if window is None:
            return set()
        payloads = [batch.payload for batch in window._numbered.values()]
        payloads += [fresh[4] for fresh in window._fresh]
        return {int.from_bytes(payload[:8], "little") for payload in payloads}
