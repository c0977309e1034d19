"""Runs of a trainer and a writer of rows, each a process of its own that is killed at random.

What a learner has beside them has no part in what is learned: sockets, actors, evaluations. Both
processes are forks of this one, so that a start takes no time.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from configurations import configured
from no_peers import NoPeers

from vedette_rl.core.columns import INTERVENED
from vedette_rl.envs.spaces import Spaces
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.ring import RingWriter
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.testing.inputs import sampled_transitions
from vedette_services.config import RunConfig
from vedette_services.learner.trainer.learner import Learner
from vedette_services.learner.trainer.process import open_replay
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.replay_layout import make_run_limiter, replay_directory, replay_layout
from vedette_services.run.sources import open_interventions, source_directory
from vedette_services.status.records import TrainerStatus

POOL = 4096
ENDS_WITHIN_S = 120.0
DISCRETE = Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(3))
CONTINUOUS = Spaces(
    gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32)
)


def config_of(agent: str, steps: int = 300, **replay: Any) -> RunConfig:
    """A short run."""
    table: dict[str, Any] = {
        "preset": "none",
        "env": {"id": "CartPole-v1"},
        "agent": {"name": agent, "hidden_sizes": [16, 16], "batch_size": 16},
        "actors": {"n_buffer": 16},
        "replay": {"samples_per_insert": 2.0, "beta_steps": 500, **replay},
        "learner": {
            "warmup_period": 64,
            "save_interval": 20,
            "keep_checkpoints": 2,
            "record_agent_info_interval": 10,
            "eval_interval": 0,
            "recorders": ["csv"],
        },
        "stop": {"max_opts": steps},
    }
    return configured(table=table)


OVERWRITTEN = {"capacity": 200, "keep": 100_000}
CASES = {
    "dqn": config_of("dqn"),
    "sac": config_of("sac", **OVERWRITTEN),
    "td3": config_of("td3"),
    "by priority": config_of("dqn", prioritized=True, **OVERWRITTEN),
    "two sources": config_of("dqn", sources={"demos": {"data": "x.npz", "share": 0.3}}),
    "two sources by priority": config_of(
        "dqn", prioritized=True, sources={"demos": {"data": "x.npz", "share": 0.3}}
    ),
    "two sources that grow": config_of(
        "dqn", prioritized=True, sources={"interventions": {"share": 0.4}}
    ),
}
"""Kinds of runs, some of which keep rows that can no longer be drawn."""


@dataclass
class KilledRun:
    """A run in a directory, whose processes are started here.

    Args:
        rows: makes so many rows of a seed; those that a test poisons, for example.
        leads_by: rows that the writer is ahead of the trainer's steps, at most, whichever of the
            two has more of a processor; None: as many as it can.
        syncs_at: the trainer's step at which the disk gets the rows so far, and no later ones;
            None: it gets them only where a writer ends.
    """

    root: Path
    config: RunConfig
    rng: random.Random
    rows: Callable[[Spaces, int, int], Any] = sampled_transitions
    leads_by: int | None = None
    syncs_at: int | None = None
    spaces: Spaces = field(init=False)

    def __post_init__(self) -> None:
        self.run = RunDirectory(self.root)
        self.run.make()
        self.run_id = self.run.ensure_id()
        self.spaces = DISCRETE if self.config.agent.name in ("dqn", "iqn") else CONTINUOUS
        self.layout = replay_layout(self.config, self.spaces)
        for name, source in self.config.replay.sources.items():
            if source.data:
                self._fill_source(name)
        self.kills: list[tuple[str, int]] = []
        self._steps = mmap.mmap(-1, 8)  # that the trainer has done

    def train(self, kills: int) -> None:
        """Train to the end; some of the processes are killed before."""
        writer = _fork(self._write)
        trainer = _fork(self._train)
        deadline = time.monotonic() + ENDS_WITHIN_S
        steps = self.config.stop.max_opts
        for at in sorted(self.rng.sample(range(1, steps * 9 // 10), kills)):
            while self._done < at and _runs(trainer):
                assert time.monotonic() < deadline, "it does not train"
                time.sleep(0.0005)
            victims = self.rng.choice(("trainer", "gateway", "learner"))
            if victims != "trainer":
                _kill(writer)
            if victims != "gateway":
                _kill(trainer)
                trainer = _fork(self._train)
            if victims != "trainer":
                writer = _fork(self._write)
            self.kills.append((victims, at))
        while os.waitpid(trainer, os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline, "it has not ended"
            time.sleep(0.01)
        _kill(writer)
        saved = self.newest
        assert saved == self.config.stop.max_opts, f"it ended at step {saved}"

    @property
    def newest(self) -> int:
        return self.run.newest_checkpoint() or 0

    @property
    def _done(self) -> int:
        return int.from_bytes(self._steps[:], "little")

    @property
    def _asked(self) -> int:
        """Rows that the limiter asks for before the trainer's next step."""
        ratio = self.config.replay.samples_per_insert
        assert ratio is not None
        drawn = self._done * self.config.agent.batch_size
        return self.config.learner.warmup_period + int(drawn / ratio)

    def insert_until_oldest(self, row: int) -> None:
        """Insert rows until the oldest that is left alone is this one."""
        ring = self._open_ring()
        left = row + ring.capacity + ring.keep - ring.inserted
        columns = {"version": 0, "manager": 0, "actor": 0, **self.rows(self.spaces, POOL, 2)}
        while left > 0:
            count = min(left, ring.room, POOL)
            part = {n: c[:count] if isinstance(c, np.ndarray) else c for n, c in columns.items()}
            ring.append(part, count)
            ring.commit(ring.stamp)
            left -= count
        ring.close()

    def close_ring(self) -> None:
        """Have the disk have all rows, as a writer that ends does."""
        self._open_ring().close()

    def _open_ring(self) -> RingWriter:
        return open_writer(
            replay_directory(self.config, self.root),
            self.layout.stored,
            self.config.replay.capacity,
            run_id=self.run_id,
            guard=self.layout.guard,
            batch_rows=self.layout.batch_rows,
            keep=self.layout.keep,
            shared=self.layout.shared,
            sync_interval_s=0.0 if self.syncs_at is None else ENDS_WITHIN_S,
            recovers=False,
        )

    def _write(self) -> None:
        """Insert rows for ever, at any pace."""
        ring = self._open_ring()
        pool = self.rows(self.spaces, POOL, 1)
        marked = open_interventions(self.config, self.root, self.run_id, self.spaces, ring)
        size = self.config.actors.n_buffer
        marks = {} if marked is None else {INTERVENED: np.arange(size) % 5 == 0}
        rng = random.Random(os.getpid())
        while True:
            batches = rng.randint(0, 3)
            if self.leads_by is not None:
                allowed = self._asked + self.leads_by - ring.inserted
                batches = min(batches, max(0, allowed // size))
            for _ in range(batches):
                first = (ring.inserted + ring.pending) % (POOL - size)
                part = {name: column[first : first + size] for name, column in pool.items()}
                ring.append({"version": 0, "manager": 0, "actor": 0, **part, **marks}, size)
            ring.commit()
            if self.syncs_at is not None and self._done >= self.syncs_at:
                self.syncs_at = None
                ring.request_sync()
            if marked is not None:
                marked.follow()
            time.sleep(rng.random() * 0.004)

    def _train(self) -> None:
        epoch = self.run.begin_epoch().epoch
        address = Address("127.0.0.1", 20000)
        spec = LearnerSpec(self.run, self.run_id, self.config, self.spaces, address)
        learner = Learner(
            self.config,
            self.run,
            self.run_id,
            epoch,
            spaces=self.spaces,
            open_replay=lambda: open_replay(spec, epoch),
            lasting=True,
        )
        limiter = make_run_limiter(self.config)
        learner.close(learner.train(_Counted(self._steps), limiter, tick_s=0.0))

    def _fill_source(self, name: str) -> None:
        rows = 400
        ring = open_writer(
            source_directory(self.config, self.root, name),
            self.layout.stored,
            rows,
            run_id="data",
        )
        columns = sampled_transitions(self.spaces, rows, 9)
        ring.append({"version": -1, "manager": 0, "actor": 0, **columns}, rows)
        ring.commit()
        ring.close()


class _Counted(NoPeers):
    """Says how far the trainer is."""

    def __init__(self, steps: mmap.mmap) -> None:
        self._steps = steps

    def publish_status(self, status: TrainerStatus) -> None:
        self._steps[:] = status.opt_steps.to_bytes(8, "little")


def checkpoint_steps(root: Path) -> list[int]:
    return [int(path.name) for path in Checkpoints(root / "checkpoints", keep=1).list()]


def _fork(act: Callable[[], None]) -> int:
    """A process that does this, and ends."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        act()
        status = 0
    except BaseException:  # noqa: BLE001 - a process has no caller
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _runs(pid: int) -> bool:
    """True while a child of ours runs; who waits for it finds it still."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
