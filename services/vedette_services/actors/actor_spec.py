"""The specification that an actor process gets at its start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vedette_services.actors.instructions import StartActor

SLOTS = 2  # one is filled while the other is taken; more would only hold older samples


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """The whole description of an actor: from this alone the process builds what it needs.

    Args:
        index: the actor's number on this host, from 0.
        number: its number among all actors of the run: places it on the exploration ladder.
        restarts: the number of earlier starts.
        epoch: the learner's epoch when it was started: a resumed run plays other episodes.
        env, agent, actors: the run's configurations, as they travel.
        schema: the row's wire schema, as it travels.
        random_bits: part of its seeds, so that a host that is started again plays other episodes;
            0: the seeds follow from the run alone.
        slots, memory_fd, socket_fd: the parts of its end of the handover, if it has a process of
            its own.
        model_map, stats_map: paths of the newest-value maps; the manager writes the first.
        traceback_file: takes the traceback of what ended it.
        stack_file: takes its stack, when it is asked where it stands.
    """

    index: int
    number: int
    restarts: int
    seed: int
    epoch: int
    env: dict[str, Any]
    agent: dict[str, Any]
    actors: dict[str, Any]
    schema: Any  # what Schema.to_wire gives
    random_bits: int = 0
    slots: int = 0
    memory_fd: int = -1
    socket_fd: int = -1
    model_map: str = ""
    stats_map: str = ""
    traceback_file: str = ""
    stack_file: str = ""

    @classmethod
    def of(cls, order: StartActor, random_bits: int = 0) -> ActorSpec:
        """The actor of an order, without what a process of its own needs."""
        run = order.run
        return cls(
            index=order.index,
            number=order.number,
            restarts=order.restarts,
            seed=run.seed,
            epoch=run.epoch,
            env=dict(run.env),
            agent=dict(run.agent),
            actors=dict(run.actors),
            schema=run.schema.to_wire(),
            random_bits=random_bits,
        )

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ActorSpec:
        return cls(**json.loads(data))

    def seeds(self) -> tuple[int, int, int, int]:
        """Seeds of the environments, of exploration, of the step processor and of the count of
        steps.

        They are this actor's own among all of a run, and others at every restart, of its host too.
        """
        entropy = (self.seed, self.number, self.epoch, self.restarts)
        root = np.random.SeedSequence((*entropy, self.random_bits) if self.random_bits else entropy)
        env, exploration, steps, count = (int(seed.generate_state(1)[0]) for seed in root.spawn(4))
        return env, exploration, steps, count
