"""The wire with all its promises beside plain PUSH/PULL, in turn, in one run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette_services.bench.bare import Payload, bare_per_s
from vedette_services.bench.daemons import NOT_TRAINING, inserted_per_s, learner_of
from vedette_services.bench.spread import spread
from vedette_services.config.loading import load_config
from vedette_services.local_run import free_port
from vedette_services.processes import end, python_module, spawn

SMALL = Payload(64, (4,), "float32")
ATARI = Payload(32, (4, 84, 84), "uint8")
_PRODUCERS = 2
_WARM_S = 1.0


@dataclass(frozen=True, slots=True)
class WireBench:
    """What to measure: two producers at full speed into a learner's replay.

    Args:
        payload: of a batch.
        capacity: of the replay.
        seconds: of a round.
        rounds: each measures both; the ratio is taken within a round.
    """

    payload: Payload = SMALL
    capacity: int = 100_000
    seconds: float = 4.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure both in turn."""
        ours, bare = [], []
        for _ in range(self.rounds):
            bare.append(bare_per_s(self.payload, free_port(), self.seconds))
            ours.append(self.vedette_per_s())
        ratios = [a / b for a, b in zip(ours, bare, strict=True)]
        return {
            "rows": self.payload.rows,
            "shape": list(self.payload.shape),
            "dtype": self.payload.dtype,
            "batch_bytes": self.payload.schema.payload_bytes(self.payload.rows),
            "transitions_per_s": spread(ours),
            "bare_transitions_per_s": spread(bare),
            "ratio": spread(ratios),
        }

    def vedette_per_s(self, keys: Path | None = None) -> float:
        """Transitions a second from two producers into a learner's replay.

        Args:
            keys: a learner's folder of keys; None: neither encrypt nor authenticate.
        """
        shape = json.dumps(list(self.payload.shape))
        config = load_config(
            env="vedette_services.bench.synthetic:Synthetic-v0",
            agent="dqn",
            settings=[
                "agent.network=mlp",
                "agent.hidden_sizes=[8]",
                f"env.kwargs.shape={shape}",
                f"env.kwargs.dtype={self.payload.dtype}",
                f"actors.n_buffer={self.payload.rows}",
                f"replay.capacity={self.capacity}",
                *NOT_TRAINING,
                "learner.device=cpu",
                "learner.eval_interval=0",
                "stop.max_seconds=600",
            ],
        ).config
        with learner_of(config, keys) as (address, asker):
            producers = [
                spawn(
                    python_module(
                        "vedette_services.bench.producer",
                        str(address),
                        f"producer-{number}",
                        str(self.payload.rows),
                        *([str(keys)] if keys else []),
                    )
                )
                for number in range(_PRODUCERS)
            ]
            try:
                return inserted_per_s(asker, _WARM_S, self.seconds)
            finally:
                end(producers, term_s=5.0)
