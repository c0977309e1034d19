"""The learner of a queue: which checkpoints it makes, and what it tells the writer of rows."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import configured  # of tests/support
from no_peers import NoPeers
from queue_counter import NAME  # of tests/integration

from vedette_rl.envs.make import environment_spaces
from vedette_rl.replay.frame_ring import open_reader, open_writer
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.queue import QueueReplay
from vedette_rl.replay.ring import RingWriter
from vedette_services.config import RunConfig
from vedette_services.learner.trainer import learner as learner_module
from vedette_services.learner.trainer.learner import Learner, make_replay
from vedette_services.run.directory import RunDirectory
from vedette_services.run.queue_place import kept_at_start
from vedette_services.run.replay_layout import replay_directory, replay_layout
from vedette_services.status.assembly import assemble_known, counted
from vedette_services.status.records import GatewayStatus, TrainerStatus
from vedette_services.status.status import Eval, Samples

SETTINGS = (
    "preset=none",
    "replay.capacity=400",
    "actors.envs_per_actor=4",
    "learner.recorders=[]",
    "learner.eval_interval=0",
)
CONFIG = configured(*SETTINGS, env="CartPole-v1", agent=NAME)
SPACES = environment_spaces(CONFIG.env)


class Watching(NoPeers):
    """Ends the run when there is nothing to learn from; says what the disk has."""

    def __init__(self, synced: int = 1 << 60) -> None:
        self.synced = synced
        self.statuses: list[TrainerStatus] = []
        self.asked = threading.Event()

    def publish_status(self, status: TrainerStatus) -> None:
        self.statuses.append(status)

    def synced_rows(self) -> int:
        self.asked.set()
        return self.synced

    def is_stopped(self) -> bool:
        return self.statuses[-1].phase == "waiting"


class Run:
    """A run's directory, with a ring that the test writes."""

    def __init__(self, root: Path, config: RunConfig = CONFIG) -> None:
        self.config = config
        self.run = RunDirectory(root)
        self.run.make()
        self.run_id = self.run.ensure_id()
        self.epoch = 0

    def ring(self) -> RingWriter:
        layout = replay_layout(self.config, SPACES)
        return open_writer(
            replay_directory(self.config, self.run.root),
            layout.stored,
            self.config.replay.capacity,
            run_id=self.run_id,
            guard=layout.guard,
            batch_rows=layout.batch_rows,
        )

    def insert(self, runs: int) -> None:
        ring = self.ring()
        for _ in range(runs):
            first = ring.inserted
            columns: dict[str, Any] = {
                name: np.zeros((8, *column.shape[1:]), column.dtype)
                for name, column in ring.columns.items()
            }
            columns["t"] = np.arange(first, first + 8)
            columns["run"] = np.arange(8) == 0
            columns["epoch"][:] = self.epoch
            ring.append(columns, 8)
            ring.commit(b"stamp")
        ring.close()

    def learner(self) -> Learner:
        self.epoch += 1
        rows = open_reader(replay_directory(self.config, self.run.root))
        return Learner(
            self.config,
            self.run,
            self.run_id,
            self.epoch,
            spaces=SPACES,
            open_replay=lambda: make_replay(self.config, SPACES, rows, self.epoch),
            lasting=True,
        )

    def train(self, peers: Watching) -> TrainerStatus:
        learner = self.learner()
        peers.statuses.append(learner.status)
        last = learner.train(peers, Limiter(0.0, 0, 0.0, 32), idle=lambda: None, tick_s=0.0)
        return learner.close(last)

    @property
    def kept(self) -> int | None:
        return kept_at_start(self.config, self.run)


def test_the_place_is_that_of_the_checkpoint_on_the_disk(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.insert(20)  # a block of 16 runs, and four
    assert run.kept == 0
    peers = Watching()
    last = run.train(peers)
    assert (last.taken, last.kept) == (160, 128)
    assert {status.kept for status in peers.statuses[:-1]} >= {0}
    assert run.kept == 128
    assert run.learner().status.kept == 128


def test_a_checkpoint_is_named_once_the_disk_has_the_rows_that_it_knows_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_module, "_SYNC_S", 0.05)
    run = Run(tmp_path)
    run.insert(20)
    peers = Watching(synced=127)
    last = run.train(peers)
    assert peers.asked.is_set()
    assert "the disk does not have the replay's rows up to 160 yet" in last.unsaved
    assert run.run.newest_checkpoint() is None, "that behind the block knows of 128 rows"
    assert last.sync_until == 160
    assert run.kept == 0
    again = run.train(Watching(synced=160))
    assert again.unsaved == ""
    assert run.kept == 128


def test_rows_that_come_while_a_run_ends_wait_until_the_next_start_passes_them_over_as_stale(
    tmp_path: Path,
) -> None:
    """As an outage's rows that are uploaded behind the last optimization step."""
    config = configured(*SETTINGS, "replay.max_lag=1", env="CartPole-v1", agent=NAME)
    run = Run(tmp_path, config)
    run.insert(20)
    last = run.train(Watching())
    assert last.opt_steps > 1
    assert (last.taken, last.replay.waiting) == (160, 0)
    run.insert(5)  # of the first model
    ingest = GatewayStatus(rows=200, samples=Samples(inserted=200))
    status = counted(assemble_known(run.run_id, config, last, ingest, Eval()))
    assert status.replay.waiting == 40
    again = run.train(Watching())
    assert (again.taken, again.replay.waiting) == (200, 0)
    assert again.replay.stale == (last.replay.stale or 0) + 40


def test_another_replay_has_all_its_rows_before_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.insert(20)
    run.train(Watching())
    shutil.rmtree(replay_directory(CONFIG, tmp_path))
    assert run.kept == 0
    run.insert(3)
    learner = run.learner()
    assert (learner.status.taken, learner.status.kept) == (0, 0)
    assert isinstance(learner.replay, QueueReplay)
    assert learner.replay.counts.trained == 0


def test_a_run_goes_on_in_the_middle_of_a_block(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"stop": CONFIG.stop.model_copy(update={"max_opts": 3})})
    run = Run(tmp_path, config)
    run.insert(20)
    run.train(Watching())
    assert run.kept == 0
    run.config = CONFIG
    last = run.train(Watching())
    assert last.opt_steps == 8
    state = run.learner().agent.get_state()
    _, times = np.unique(state["rows"], axis=0, return_counts=True)
    assert times.tolist() == [2] * 128
