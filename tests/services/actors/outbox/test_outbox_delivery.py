"""Managers with outboxes and a learner, by their own state objects, on a network that loses and
reorders: whoever is killed, every row is stored once."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from manager_rig import MODEL, SCHEMA

from vedette_protocol.codec import decode_control, decode_up, encode
from vedette_protocol.messages import OUTBOX, Buffer, Report, Run
from vedette_rl.replay.limiter import Limiter
from vedette_rl.storage import record_file
from vedette_rl.storage.record_file import RecordFile
from vedette_services.actors.connection import Identity
from vedette_services.actors.handover import FinishedBatch
from vedette_services.actors.instructions import Exit, Instruction, SendBatches, SendReport
from vedette_services.actors.manager_state import ManagerState
from vedette_services.actors.outbox.files import OutboxFiles
from vedette_services.learner.gateway.state import GatewayState, Position
from vedette_services.run.ring_stamp import read_archive_end

RUN_ID = "r1"
FREE = Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1)
STEP_S = 0.05
Frames = list[bytes]


class Learner:
    """A gateway's state, with rows and stamp in place of the ring. It can go back to its sync.

    Args:
        older: of a release that knows no outbox.
    """

    def __init__(self, rng: random.Random, directory: Path, *, older: bool) -> None:
        self.rng = rng
        self.older = older
        self.path = directory / "archive"
        self.archive: RecordFile | None = None
        self.committed: tuple[list[float], bytes] = ([], b"")
        self.synced = self.committed
        self.epoch = 0
        self.start(0.0)

    def start(self, now: float) -> None:
        """Start on what is there."""
        self.epoch += 1
        self.rows = list(self.committed[0])
        name = self.rng.getrandbits(60)
        stamp = self.committed[1]
        self.end()
        self.archive = RecordFile(self.path, read_archive_end(RUN_ID, stamp))
        self.state = GatewayState(
            RUN_ID,
            name,
            SCHEMA,
            stamp=stamp,
            now=now,
            limiter=FREE,
            rows_per_batch=4,
            elements=None,
            archive=self.archive,
        )
        self.state.position = Position(epoch=self.epoch, version=1)
        features = () if self.older else (OUTBOX,)
        settings = {"id": "CartPole-v1"}, {"name": "dqn"}, {"n_buffer": 4}
        run = Run(RUN_ID, self.epoch, name, SCHEMA, MODEL, *settings, 0, 4, 8, features)
        self.run = [bytes(frame) for frame in self.state.announce_run(run)[0][1:]]

    def end(self) -> None:
        if self.archive is not None:
            self.archive.close()

    def lose_power(self, now: float) -> None:
        assert self.archive is not None
        synced = self.archive.synced
        self.end()
        if self.path.exists():
            os.truncate(self.path, synced)
        self.committed = self.synced
        self.start(now)

    def receive(self, frames: Frames, now: float) -> None:
        message = decode_up(frames)
        if self.older and isinstance(message, Report):
            frames = as_bytes(encode(replace(message, ended=False, features=())))
        self.state.on_samples(frames, now)

    def turn(self, now: float) -> list[Frames]:
        """Commit, and return what is sent."""
        for block in self.state.blocks(now):
            self.rows += block.columns["reward"].ravel().tolist()
        assert len(set(self.rows)) == len(self.rows), "a row is stored twice"
        self.committed = list(self.rows), self.state.stamp()
        self.state.tick(now)
        self.state.safe.on_synced(self.synced[1])
        return [as_bytes(frames[1:]) for frames in self.state.acks_due(now, len(self.rows))]

    def sync(self) -> None:
        self.synced = self.committed


class Robot:
    """A host with an outbox: the processes of its manager, one after another."""

    def __init__(self, rng: random.Random, directory: Path, name: str) -> None:
        self.rng = rng
        self.directory = directory
        self.name = name
        self.start(0.0)

    def start(self, now: float) -> None:
        self.files = OutboxFiles(self.directory, max_bytes=1 << 20, memory_bytes=1 << 8)
        self.state = ManagerState(
            Identity(self.name, "host", "far:5555"),
            count=1,
            allow_import=(),
            incarnation=lambda: self.rng.getrandbits(64),
            jitter=self.rng.random,
            now=now,
            outbox=self.files,
        )
        self.run: Run | None = None
        self.connects_at = now

    def kill(self, now: float) -> None:
        os.close(self.files._folder.descriptor)
        self.start(now)

    def copy(self) -> None:
        """Copy the disk, or put it back from the copy."""
        copy = self.directory.with_suffix(".copy")
        if not copy.exists():
            shutil.copytree(self.directory, copy)
            return
        os.close(self.files._folder.descriptor)
        shutil.rmtree(self.directory)
        copy.rename(self.directory)

    def move(self, *, leaves_folder: bool) -> None:
        """Take the disk away, or bring it back. The thread that syncs looks often."""
        away = self.directory.with_suffix(".away")
        if not away.exists():
            self.directory.rename(away)
            if leaves_folder:  # the empty one beneath the mount
                self.directory.mkdir()
        else:
            if self.directory.exists():
                shutil.rmtree(self.directory)
            away.rename(self.directory)
        self.files.sync()

    @property
    def is_away(self) -> bool:
        return self.directory.with_suffix(".away").exists()

    @property
    def needs_its_memory(self) -> bool:
        """True if a kill would take rows that only this process has."""
        return self.is_away or self.files.away is not None or self.files.bytes_in_memory_alone > 0

    @property
    def sessions(self) -> int:
        return len([session for session in self.files.sessions if session.held])


def as_bytes(frames: list[Buffer]) -> Frames:
    return [bytes(frame) for frame in frames]


class World:
    def __init__(self, seed: int, directory: Path, *, older: bool) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.learner = Learner(self.rng, directory, older=older)
        self.robots = [
            Robot(self.rng, directory / str(number), f"m{number}") for number in range(2)
        ]
        self.produced = 0
        self.lossy = self.rng.choice((0.0, 0.1, 0.3))
        self._up: list[Frames] = []
        self._down: list[Frames] = []

    def step(self, *, plays: bool) -> None:
        self.now += STEP_S
        for robot in self.robots:
            self._step_robot(robot, plays=plays)
        for frames in self._arriving("_up"):
            self.learner.receive(frames, self.now)
        self._down += self.learner.turn(self.now)
        for frames in self._arriving("_down"):
            for robot in self.robots:
                self._execute(robot, robot.state.on_control(decode_control(frames), self.now))
        if self.rng.random() < 0.1:
            self.learner.sync()
        if self.rng.random() < 0.3:
            for robot in self.robots:
                robot.files.sync()

    def _step_robot(self, robot: Robot, *, plays: bool) -> None:
        state = robot.state
        if robot.connects_at <= self.now:
            robot.connects_at = float("inf")
            self._execute(robot, state.on_connected(self.now))
            robot.run = decode_control(self.learner.run)  # type: ignore[assignment]
            self._execute(robot, state.on_control(robot.run, self.now))  # type: ignore[arg-type]
        if plays and robot.run is not None and state.has_room_for(16) and self.rng.random() < 0.5:
            rows = np.arange(self.produced, self.produced + 4, dtype=np.float32)
            self.produced += 4
            payload = bytes(SCHEMA.pack({"reward": rows}, 4))
            batch = FinishedBatch(4, 1, 1, payload)
            self._execute(robot, state.on_batch(0, robot.run, batch, self.now))
        self._execute(robot, state.on_tick(self.now))

    def _execute(self, robot: Robot, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendBatches(batches):
                    self._up += [as_bytes(encode(batch)) for batch in batches]
                case SendReport(report):
                    self._up.append(as_bytes(encode(report)))
                case Exit():
                    raise AssertionError(f"{robot.name} ends: {instruction.reason}")

    def _arriving(self, way: str) -> list[Frames]:
        """Take some of what is under way, in any order; some of it is lost."""
        waiting: list[Frames] = getattr(self, way)
        self.rng.shuffle(waiting)
        count = self.rng.randint(0, len(waiting))
        setattr(self, way, waiting[count:])
        return [frames for frames in waiting[:count] if self.rng.random() >= self.lossy]

    def drain(self) -> None:
        """Go on without faults until all outboxes are empty."""
        self.lossy = 0.0
        self.learner.start(self.now)
        for robot in self.robots:
            robot.connects_at = self.now
            if robot.is_away:
                robot.move(leaves_folder=False)
        for _ in range(6000):
            self.step(plays=False)
            if not any(robot.sessions for robot in self.robots):
                return
        raise AssertionError("outboxes do not become empty")

    def fail(self, *, puts_back: bool = False, moves: bool = False) -> None:
        what = self.rng.random()
        robot = self.rng.choice(self.robots)
        if moves and self.rng.random() < 0.5:
            robot.move(leaves_folder=self.rng.random() < 0.5)
        elif moves and robot.needs_its_memory and what < 0.5:
            return
        elif puts_back and self.rng.random() < 0.4:
            was_copied = robot.directory.with_suffix(".copy").exists()
            robot.copy()
            if was_copied:
                robot.start(self.now)
        elif what < 0.5:
            robot.kill(self.now)
        elif what < 0.7:
            robot.state.on_disconnected()
            robot.connects_at = self.now + self.rng.choice((0.1, 1.0, 5.0))
        else:
            # What is stored is held no longer where it is in memory alone.
            if what < 0.85 or self.learner.older or moves:
                self.learner.start(self.now)
            else:
                self.learner.lose_power(self.now)
            self._up = []
            for each in self.robots:
                each.connects_at = self.now + self.rng.random()


@pytest.fixture(autouse=True)
def syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_BETWEEN_S", 0.0)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_every_row_is_stored_once_whoever_is_killed(tmp_path: Path, seed: int, older: bool) -> None:
    world = World(seed, tmp_path, older=older)
    for _ in range(600):
        world.step(plays=True)
        if world.rng.random() < 0.03:
            world.fail()
    world.learner.older = False  # it is upgraded
    world.drain()
    assert sorted(world.learner.rows) == [*range(world.produced)]
    assert world.produced > 500
    counts = world.learner.state.accounting()
    assert (counts.produced, counts.inserted) == (world.produced, world.produced)
    assert counts.lost == counts.in_flight == 0
    world.learner.end()


@pytest.mark.parametrize("seed", range(100, 106))
def test_no_row_is_stored_twice_where_outboxes_are_put_back_from_older_copies(
    tmp_path: Path, seed: int
) -> None:
    """However many sessions were closed since: what came after the copy, and was not stored, is
    lost."""
    world = World(seed, tmp_path, older=False)
    for _ in range(900):
        world.step(plays=True)
        if world.rng.random() < 0.06:
            world.fail(puts_back=True)
    world.drain()
    rows = world.learner.rows
    assert len(set(rows)) == len(rows) > 500
    assert world.learner.state.accounting().inserted == len(rows)
    assert world.learner.state.ledger.archive_end > 0
    world.learner.end()


@pytest.mark.parametrize("seed", range(200, 208))
def test_every_row_is_stored_once_though_disks_go_and_come_back(tmp_path: Path, seed: int) -> None:
    world = World(seed, tmp_path, older=seed % 4 == 0)
    away = 0
    for _ in range(900):
        world.step(plays=True)
        away += any(robot.files.away is not None for robot in world.robots)
        if world.rng.random() < 0.06:
            world.fail(moves=True)
    world.learner.older = False
    world.drain()
    assert away > 50
    assert sorted(world.learner.rows) == [*range(world.produced)]
    assert world.produced > 500
    counts = world.learner.state.accounting()
    assert (counts.produced, counts.inserted) == (world.produced, world.produced)
    assert counts.lost == counts.in_flight == counts.dropped == 0
    world.learner.end()
