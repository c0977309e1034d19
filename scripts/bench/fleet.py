"""Environment steps per second that actors on this machine bring into the replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.daemons import (
    ACTOR,
    NOT_TRAINING,
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


@dataclass(frozen=True, slots=True)
class FleetBench:
    """Counts environment steps in the replay of a learner that does not train.

    Args:
        env: id of the environment.
        actors: actor processes.
        envs: environments of each.
        vectorization: as `env.vectorization`.
        seconds: of a round.
        rounds: number of measurements, of which the median is given.
    """

    env: str = "CartPole-v1"
    actors: int = 2
    envs: int = 16
    vectorization: str = "loop"
    seconds: float = 5.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure."""
        config = load_config(
            env=self.env,
            settings=[
                "preset=none",
                "agent.hidden_sizes=[64,64]",
                "agent.n_step=1",
                f"actors.envs_per_actor={self.envs}",
                "actors.n_buffer=512",
                f"env.vectorization={self.vectorization}",
                f"replay.capacity={_CAPACITY}",
                *NOT_TRAINING,
                "learner.eval_interval=0",
            ],
        ).config
        with learner_of(config) as (address, asker), run_actors(address, self.actors):
            rates = [measured(asker, _WARM_S, self.seconds).per_s for _ in range(self.rounds)]
            check_actors(ask(asker))
            resident = resident_bytes(ACTOR)
        return {
            "env": self.env,
            "actors": self.actors,
            "envs_per_actor": self.envs,
            "vectorization": self.vectorization,
            "steps_per_s": summarize_rounds(rates),
            "actor_resident_bytes": max(resident, default=0),
        }
