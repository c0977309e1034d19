"""The training loop that publishes a model after every step, beside the same loop without."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bare_loop import BareLoop, imitate_trainer
from bench.measuring import ratio_of_rounds, summarize_rounds
from vedette_protocol.model import body_bytes
from vedette_protocol.schema import Schema
from vedette_services.learner.trainer.background import BackgroundPublisher
from vedette_services.run.model_map import ModelMapWriter

_CLOSE_S = 20.0


@dataclass(frozen=True, slots=True)
class PublishingBench:
    """Measures DQN with an MLP of two hidden layers on four numbers.

    Blocks of steps with and without publishing take turns, so that a slow moment meets both. The
    cost of a model is the time that steps with it took longer; its packing beside them counts.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer; 500 make a model of 1 MB.
        opts: optimization steps of a block.
        blocks: of each kind in a round.
        rounds: each measures both.
    """

    batch_size: int = 256
    hidden: int = 500
    opts: int = 10
    blocks: int = 15
    rounds: int = 7

    def run(self) -> dict[str, Any]:
        """Measure; optimization steps a second, their ratio, and what a model costs."""
        with imitate_trainer(), tempfile.TemporaryDirectory(prefix="vedette-bench-") as place:
            loop = _PublishingLoop(self, Path(place) / "model.map")
            try:
                rounds = [self._round(loop) for _ in range(self.rounds)]
            finally:
                loop.close()
        count = self.opts * self.blocks
        rates = [count / without for without, _, _ in rounds]
        publishing = [count / took for _, took, _ in rounds]
        return {
            "opt_steps_per_s": summarize_rounds(rates),
            "opt_steps_per_s_publishing": summarize_rounds(publishing),
            "ratio": ratio_of_rounds(publishing, rates),
            "model_bytes": loop.model_bytes,
            "call_ms": summarize_rounds([1e3 * calls / count for _, _, calls in rounds]),
            "cost_ms": summarize_rounds(
                [1e3 * (took - without) / count for without, took, _ in rounds]
            ),
        }

    def _round(self, loop: _PublishingLoop) -> tuple[float, float, float]:
        """Seconds of all blocks without, of those with, and of the calls in them."""
        without = publishing = calls = 0.0
        for _ in range(self.blocks):
            without += loop.opts(self.opts)
            took, called = loop.opts_publishing(self.opts)
            publishing += took
            calls += called
        return without, publishing, calls


class _PublishingLoop(BareLoop):
    """A loop, and what brings its models into a map beside it."""

    def __init__(self, bench: PublishingBench, file: Path) -> None:
        super().__init__(bench.batch_size, bench.hidden)
        schema = Schema.from_arrays(self.agent.model_info().arrays)
        self.model_bytes = body_bytes(schema)
        self._publisher = BackgroundPublisher(ModelMapWriter(file, schema), epoch=1)

    def opts_publishing(self, count: int) -> tuple[float, float]:
        """Optimize and publish after each step; the seconds it took, and those of publishing."""
        calls = 0.0
        began = time.perf_counter()
        for _ in range(count):
            self.opt()
            called = time.perf_counter()
            self._publisher.publish(self.agent.model_info())
            calls += time.perf_counter() - called
        return time.perf_counter() - began, calls

    def close(self) -> None:
        self._publisher.close(_CLOSE_S)
