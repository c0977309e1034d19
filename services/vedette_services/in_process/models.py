"""Models handed on inside one process."""

from __future__ import annotations

from dataclasses import dataclass

from vedette_protocol.model import check_model
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo


@dataclass(frozen=True, slots=True)
class KeptModel:
    """A model and the learner's start that made it."""

    epoch: int
    model: ModelInfo

    def info(self) -> ModelInfo:
        """What a policy syncs to."""
        return self.model


class NewestModel:
    """The newest model: one side writes, any number of readers look."""

    def __init__(self) -> None:
        self.seq = 0
        self.newest: KeptModel | None = None
        self._schema: Schema | None = None

    def write(self, epoch: int, model: ModelInfo) -> None:
        """Make a model the newest.

        Raises:
            ModelError: a value is not finite: daemons would not act on it either.
        """
        if self._schema is None:
            self._schema = Schema.from_arrays(model.arrays)
        check_model(model.version, model.arrays, self._schema)
        self.newest = KeptModel(epoch, model)
        self.seq += 1

    def reader(self) -> NewestModelReader:
        """One that has read nothing yet."""
        return NewestModelReader(self)


class NewestModelReader:
    """Where an `ActingLoop` looks for models."""

    def __init__(self, models: NewestModel) -> None:
        self._models, self._seq = models, 0

    @property
    def fresh(self) -> bool:
        """Whether there is a model that `read` has not returned yet."""
        return self._models.seq != self._seq

    def read(self) -> KeptModel | None:
        """The newest model; None before the first."""
        self._seq = self._models.seq
        return self._models.newest
