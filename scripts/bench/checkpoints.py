"""The training loop while a checkpoint is written, beside the same loop between two of them."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bare_loop import BareLoop, imitate_trainer
from bench.measuring import ratio_of_rounds, summarize_rounds
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.learner.trainer.background import CheckpointWriter


@dataclass(frozen=True, slots=True)
class CheckpointBench:
    """Measures DQN with an MLP of two hidden layers on four numbers.

    A checkpoint is begun at an interval of optimization steps. The steps that it overlaps, with the
    copy of the state in the first, stand beside those since the checkpoint before it.
    A run with default settings writes one every 10,000.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer.
        apart: optimization steps between two checkpoints.
        checkpoints: of a round.
        rounds: each measures both, within a second or two.
        directory: where checkpoints are written; None: in the place for temporary files.
    """

    batch_size: int = 256
    hidden: int = 256
    apart: int = 20
    checkpoints: int = 10
    rounds: int = 25
    directory: Path | None = None

    def run(self) -> dict[str, Any]:
        """Measure; optimization steps a second, their ratio, and what a checkpoint costs."""
        with (
            imitate_trainer(),
            tempfile.TemporaryDirectory(dir=self.directory, prefix="vedette-bench-") as place,
        ):
            loop = _SavingLoop(self, Path(place))
            rounds = [self._round(loop) for _ in range(self.rounds)]
            size = loop.checkpoint_bytes()
        peace = [steps.peace_opts / steps.peace_s for steps in rounds]
        writing = [steps.writing_opts / steps.writing_s for steps in rounds]
        costs = [steps.cost_s / self.checkpoints for steps in rounds]
        return {
            "opt_steps_per_s": summarize_rounds(peace),
            "opt_steps_per_s_while_writing": summarize_rounds(writing),
            "ratio": ratio_of_rounds(writing, peace),
            "checkpoint_bytes": size,
            "checkpoint_ms": summarize_rounds(
                [1e3 * r.writing_s / self.checkpoints for r in rounds]
            ),
            "cost_ms": summarize_rounds([1e3 * cost for cost in costs]),
            "cost_opt_steps": summarize_rounds(
                [c * rate for c, rate in zip(costs, peace, strict=True)]
            ),
        }

    def _round(self, loop: _SavingLoop) -> _Steps:
        steps = _Steps()
        for _ in range(self.checkpoints):
            steps.peace_s += loop.opts(self.apart)
            steps.peace_opts += self.apart
            opts, took = loop.opts_while_writing()
            steps.writing_s += took
            steps.writing_opts += opts
        return steps


@dataclass(slots=True)
class _Steps:
    """A round: optimization steps that a checkpoint overlaps, the others, and their times."""

    peace_opts: int = 0
    peace_s: float = 0.0
    writing_opts: int = 0
    writing_s: float = 0.0

    @property
    def cost_s(self) -> float:
        """Seconds of the checkpoints' steps beyond those of as many steps between them."""
        return self.writing_s - self.writing_opts * self.peace_s / self.peace_opts


class _SavingLoop(BareLoop):
    """A loop, and what writes checkpoints beside it."""

    def __init__(self, bench: CheckpointBench, place: Path) -> None:
        super().__init__(bench.batch_size, bench.hidden)
        self._checkpoints = Checkpoints(place, keep=3)
        self._checkpoint_writer = CheckpointWriter(self._checkpoints)

    def opts_while_writing(self) -> tuple[int, float]:
        """Begin a checkpoint and optimize until it is written; the steps and the seconds."""
        opts = 0
        began = time.perf_counter()
        self._save()
        while self._checkpoint_writer.busy:
            self.opt()
            opts += 1
        return opts, time.perf_counter() - began

    def _save(self) -> None:
        state = {"agent": self.agent.get_state(), "replay": self.replay.get_state()}
        self._checkpoint_writer.save(self.agent.opt_steps, state, {"sampled": self.agent.opt_steps})

    def checkpoint_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._checkpoints.list()[-1].iterdir())
