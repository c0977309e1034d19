"""Learning while a snapshot of the run is kept, beside learning without one, in turn."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.daemons import GATEWAY, TRAINER, ask, learner_of, run_actors
from bench.measuring import (
    assign_core,
    processor_s,
    ratio_of_rounds,
    reserve_core,
    summarize_rounds,
    usable_cores,
    written_bytes,
)
from vedette_services.config import RunConfig, load_config
from vedette_services.errors import NoAnswerError
from vedette_services.run.snapshot_directory import SnapshotDirectory
from vedette_services.status.client import StatusClient

SNAPSHOT = "vedette_services.learner.snapshot.process"
_WARM_S = 2.0
_FIRST_S = 180.0  # the longest wait for training, or for a generation
_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class SnapshotBench:
    """Measures DQN with an MLP of two hidden layers on CartPole-v1, with a limiter.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer.
        samples_per_insert: the limiter's: by it actors follow the learner.
        interval_s: from one generation to the next.
        save_interval: optimization steps between checkpoints, which are copied, too.
        directory: where snapshots are; None: in the place for temporary files.
        seconds: of a round; generations are measured whole.
        rounds: each measures all in turn; ratios are taken within a round.
    """

    batch_size: int = 256
    hidden: int = 256
    samples_per_insert: float = 8.0
    interval_s: float = 10.0
    save_interval: int = 2000
    directory: Path | None = None
    seconds: float = 20.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure; `again` is without a snapshot once more, which shows the spread."""
        found: dict[str, list[Learning]] = {"none": [], "snapshot": [], "again": []}
        for _ in range(self.rounds):
            for kind, measured in found.items():
                measured.append(self._measure(with_snapshot=kind == "snapshot"))
        opts = {kind: [each.opts_per_s for each in found[kind]] for kind in found}
        samples = {kind: [each.samples_per_s for each in found[kind]] for kind in found}
        cost = {kind: [each.processor_ms_per_opt for each in found[kind]] for kind in found}
        return {
            "batch_size": self.batch_size,
            "hidden": self.hidden,
            "interval_s": self.interval_s,
            "save_interval": self.save_interval,
            "own_core": len(usable_cores()) > 1,
            "opt_steps_per_s": {kind: summarize_rounds(opts[kind]) for kind in opts},
            "samples_per_s": {kind: summarize_rounds(samples[kind]) for kind in samples},
            "processor_ms_per_opt": {kind: summarize_rounds(cost[kind]) for kind in cost},
            "ratio": {kind: ratio_of_rounds(opts[kind], opts["none"]) for kind in found},
            "processor_ratio": {kind: ratio_of_rounds(cost[kind], cost["none"]) for kind in found},
            "row_bytes": found["snapshot"][0].row_bytes,
            "written_bytes_per_sample": summarize_rounds(
                [each.written_bytes_per_sample for each in found["snapshot"]]
            ),
            "generations": [each.generations for each in found["snapshot"]],
        }

    def _measure(self, *, with_snapshot: bool) -> Learning:
        with tempfile.TemporaryDirectory(prefix="vedette-snapshot-", dir=self.directory) as place:
            root = Path(place) / "snapshot"
            with (
                reserve_core() as core,
                learner_of(self._config(root if with_snapshot else None)) as (address, asker),
                run_actors(address, 1),
            ):
                return self._learning(asker, core, root if with_snapshot else None)

    def _learning(self, asker: StatusClient, core: int | None, root: Path | None) -> Learning:
        deadline = time.monotonic() + _FIRST_S
        while not ask(asker).opt_steps:
            if time.monotonic() > deadline:
                raise NoAnswerError("first optimization step of this measurement", _FIRST_S)
            time.sleep(_POLL_S)
        assign_core(core, TRAINER)
        time.sleep(_WARM_S)
        begin = _Copied.at_next(root)
        before = ask(asker)
        began = time.monotonic()
        spent = -sum(map(processor_s, (TRAINER, GATEWAY, SNAPSHOT)))
        time.sleep(self.seconds)
        end = _Copied.at_next(root)
        after = ask(asker)
        ended = time.monotonic()
        spent += sum(map(processor_s, (TRAINER, GATEWAY, SNAPSHOT)))
        opts = (after.opt_steps or 0) - (before.opt_steps or 0)
        inserted = (after.samples.inserted or 0) - (before.samples.inserted or 0)
        return Learning(
            opts_per_s=opts / (ended - began),
            samples_per_s=inserted / (ended - began),
            processor_ms_per_opt=1e3 * spent / max(1, opts),
            generations=end.number - begin.number,
            written_bytes_per_sample=(end.written - begin.written) / max(1, end.rows - begin.rows),
            row_bytes=end.row_bytes,
        )

    def _config(self, root: Path | None) -> RunConfig:
        snapshot = (
            []
            if root is None
            else [f"learner.snapshot={root}", f"learner.snapshot_interval_s={self.interval_s}"]
        )
        return load_config(
            env="CartPole-v1",
            agent="dqn",
            settings=[
                "preset=none",
                f"agent.batch_size={self.batch_size}",
                f"agent.hidden_sizes=[{self.hidden},{self.hidden}]",
                "agent.n_step=1",
                "actors.envs_per_actor=16",
                "actors.n_buffer=256",
                "replay.capacity=2000000",
                f"replay.samples_per_insert={self.samples_per_insert}",
                "learner.sync_interval=50",
                "learner.eval_interval=0",
                f"learner.save_interval={self.save_interval}",
                "stop.max_seconds=600",
                *snapshot,
            ],
        ).config


@dataclass(frozen=True, slots=True)
class Learning:
    """What one round measured.

    Args:
        opts_per_s, samples_per_s: optimization steps, and samples inserted.
        processor_ms_per_opt: of trainer, gateway and the process that copies.
        generations: that were written.
        written_bytes_per_sample: by the process that copies, checkpoints included.
        row_bytes: of a sample in the replay.
    """

    opts_per_s: float
    samples_per_s: float
    processor_ms_per_opt: float
    generations: int
    written_bytes_per_sample: float
    row_bytes: int


@dataclass(frozen=True, slots=True)
class _Copied:
    """What has been copied when a generation is there."""

    number: int = 0
    rows: int = 0
    written: int = 0
    row_bytes: int = 0

    @classmethod
    def at_next(cls, root: Path | None) -> _Copied:
        """Wait for the next generation, where there is a snapshot: then all that was written until
        now is in it, or in those before."""
        if root is None:
            return cls()
        directory = SnapshotDirectory(root)
        before = directory.look().newest
        deadline = time.monotonic() + _FIRST_S
        while time.monotonic() < deadline:
            newest = directory.look().newest
            if newest is not None and (before is None or newest.number > before.number):
                ring = newest.ring
                row_bytes = ring.manifest.total_bytes // ring.manifest.physical_rows
                return cls(newest.number, ring.inserted, written_bytes(SNAPSHOT), row_bytes)
            time.sleep(_POLL_S)
        raise NoAnswerError("generation of this measurement", _FIRST_S)
