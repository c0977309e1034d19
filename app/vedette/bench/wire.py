"""The wire with all its promises beside plain PUSH/PULL, in turn, in one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette.bench.bare import Payload, bare
from vedette.bench.daemons import GATEWAY, PRODUCER, Measured, ingest_run, learner_of, measured
from vedette.bench.measuring import ratio_of_rounds, summarize_rounds
from vedette.local.daemons import free_port
from vedette_services.host.processes import end_children, python_module, spawn

SMALL = Payload(64, (4,), "float32")
ATARI = Payload(32, (4, 84, 84), "uint8")
_PRODUCERS = 2
_WARM_S = 1.0


@dataclass(frozen=True, slots=True)
class WireBench:
    """What to measure: two producers at full speed into a learner's replay.

    Stacks of images are measured whole, as plain PUSH/PULL sends them, and as our actors send them:
    each frame of a batch once.

    Args:
        payload: of a batch.
        capacity: of the replay, and of the bound's arrays.
        seconds: of a round.
        rounds: each measures both; the ratio is taken within a round.
    """

    payload: Payload = SMALL
    capacity: int = 100_000
    seconds: float = 4.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure both in turn."""
        ours, bound, once = [], [], []
        for _ in range(self.rounds):
            bound.append(bare(self.payload, self.capacity, free_port(), self.seconds))
            ours.append(self.vedette())
            if self.payload.is_stack:
                once.append(self.vedette(frames_once=True))
        rate, bound_rate = [x.per_s for x in ours], [x.per_s for x in bound]
        cost, bound_cost = [self._batch_us(x) for x in ours], [self._batch_us(x) for x in bound]
        found = {
            "rows": self.payload.rows,
            "shape": list(self.payload.shape),
            "dtype": self.payload.dtype,
            "batch_bytes": self.payload.schema.payload_bytes(self.payload.rows),
            "transitions_per_s": summarize_rounds(rate),
            "bare_transitions_per_s": summarize_rounds(bound_rate),
            "ratio": ratio_of_rounds(rate, bound_rate),
            "processor_us_per_batch": summarize_rounds(cost),
            "bare_processor_us_per_batch": summarize_rounds(bound_cost),
            "processor_ratio": ratio_of_rounds(cost, bound_cost),
        }
        if once:
            once_rate, once_cost = [x.per_s for x in once], [self._batch_us(x) for x in once]
            found |= {
                "frames_once_transitions_per_s": summarize_rounds(once_rate),
                "frames_once_ratio": ratio_of_rounds(once_rate, bound_rate),
                "frames_once_processor_us_per_batch": summarize_rounds(once_cost),
            }
        return found

    def _batch_us(self, found: Measured) -> float:
        """Processor time of a batch, of everybody who has to do with it."""
        return 1e6 * found.processor_s / max(1, found.rows) * self.payload.rows

    def vedette_per_s(self, keys: Path | None = None) -> float:
        """Transitions a second; see `vedette`."""
        return self.vedette(keys).per_s

    def vedette(self, keys: Path | None = None, *, frames_once: bool = False) -> Measured:
        """What two producers bring into a learner's replay.

        Args:
            keys: a learner's folder of keys; None: neither encrypt nor authenticate.
            frames_once: observations are stacks of frames, and each frame travels once.
        """
        payload, stack, shape = self.payload, 0, self.payload.shape
        if frames_once:
            stack, *frame = payload.shape
            shape = tuple(frame)
        config = ingest_run(payload.rows, shape, payload.dtype, self.capacity, frame_stack=stack)
        with learner_of(config, keys) as (address, asker):
            arguments = (str(self.payload.rows), "1", "inf", *([str(keys)] if keys else []))
            producers = [
                spawn(python_module(PRODUCER, str(address), f"producer-{number}", *arguments))
                for number in range(_PRODUCERS)
            ]
            try:
                return measured(asker, _WARM_S, self.seconds, (GATEWAY, PRODUCER))
            finally:
                end_children(producers, term_s=5.0)
