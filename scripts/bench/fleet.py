"""Environment steps per second that actors on this machine bring into the replay, of a learner that
does not train, or by APPO of one that learns from each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.daemons import (
    ACTOR,
    GATEWAY,
    NOT_TRAINING,
    TRAINER,
    ask,
    check_actors,
    learner_of,
    measured,
    run_actors,
)
from bench.measuring import resident_bytes, summarize_rounds
from vedette_services.config.loading import load_config

_CAPACITY = 1_000_000
_WARM_S = 2.0
_RUN_STEPS = 32
_BLOCK = 1024
_BATCH = 256
_PROCESSES = (ACTOR, GATEWAY, TRAINER, "actors", "learner")
_NOT_LEARNING = (
    "agent.n_step=1",
    "actors.n_buffer=512",
    f"replay.capacity={_CAPACITY}",
    *NOT_TRAINING,
)


@dataclass(frozen=True, slots=True)
class FleetBench:
    """Counts environment steps in the replay of a learner.

    Args:
        env: id of the environment.
        actors: actor processes.
        envs: environments of each.
        vectorization: as `env.vectorization`.
        passes: of APPO, over blocks of 1,024 steps in minibatches of 256; 0: the environment's
            usual agent, whose learner does not train.
        seconds: of a round.
        rounds: number of measurements, of which the median is given.
    """

    env: str = "CartPole-v1"
    actors: int = 2
    envs: int = 16
    vectorization: str = "loop"
    passes: int = 0
    seconds: float = 5.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure."""
        config = load_config(
            env=self.env,
            agent="appo" if self.passes else None,
            settings=[
                "preset=none",
                "agent.hidden_sizes=[64,64]",
                f"actors.envs_per_actor={self.envs}",
                f"env.vectorization={self.vectorization}",
                *(self._on_policy() if self.passes else _NOT_LEARNING),
                "learner.eval_interval=0",
            ],
        ).config
        with learner_of(config) as (address, asker), run_actors(address, self.actors):
            rounds = [
                measured(asker, _WARM_S, self.seconds, _PROCESSES) for _ in range(self.rounds)
            ]
            check_actors(ask(asker))
            resident = resident_bytes(ACTOR)
        return {
            "env": self.env,
            "actors": self.actors,
            "envs_per_actor": self.envs,
            "vectorization": self.vectorization,
            "passes": self.passes,
            "steps_per_s": summarize_rounds([each.per_s for each in rounds]),
            "steps_per_processor_s": summarize_rounds(
                [each.rows / each.processor_s for each in rounds]
            ),
            "actor_resident_bytes": max(resident, default=0),
        }

    def _on_policy(self) -> list[str]:
        return [
            f"replay.sequence={_RUN_STEPS}",
            f"replay.block={_BLOCK}",
            f"replay.passes={self.passes}",
            f"agent.batch_size={_BATCH}",
        ]
