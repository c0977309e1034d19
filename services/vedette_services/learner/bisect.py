"""Finds the first optimization step of a run that has something, and what its batch was drawn from.

::

    search = StepSearch(Condition.parse("loss > 1e3"), run_id)
    rerun.execute(segments, search)
    search.found                # None: no step has it
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.core import Agent, OptResult, ReplayBuffer
from vedette_rl.core.columns import ACTOR, MANAGER, VERSION
from vedette_rl.device.loader import DeviceBatch, DeviceLoader
from vedette_rl.replay.config import ACTORS
from vedette_rl.replay.mixed import NUMBER_BITS, MixedReplay
from vedette_rl.replay.rows import Rows
from vedette_rl.replay.uniform import DrawnRows
from vedette_rl.storage.atomic_files import replacing
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import UsageError
from vedette_services.learner.rerun import Watch
from vedette_services.learner.trainer.divergence import manager_names

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_EXPRESSION = re.compile(r"\s*([\w/]+)\s*(<=|>=|==|<|>)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """What a step is searched for.

    Args:
        text: as the user wrote it.
        scalar: the name of a scalar that the agent records; "": any number that is not finite.
    """

    text: str
    scalar: str = ""
    compare: Callable[[float, float], bool] = operator.gt
    limit: float = math.inf

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``nan``, or a comparison such as ``loss > 1e3``.

        Raises:
            UsageError: it is neither.
        """
        if text.strip() == "nan":
            return cls(text)
        found = _EXPRESSION.fullmatch(text)
        try:
            if found is None or math.isnan(limit := float(found[3])):  # nothing compares with nan
                raise ValueError
            return cls(text, found[1], _COMPARISONS[found[2]], limit)
        except ValueError:
            raise UsageError(
                f"--bisect {text}: write nan, or a scalar with a limit, such as 'loss > 1e3'"
            ) from None

    def find(self, step: _Step) -> str:
        """Describe what of a step meets it; "" if nothing does.

        Raises:
            UsageError: the agent records no such scalar.
        """
        scalars = step.scalars
        if not self.scalar:
            return _find_not_finite(step)
        if self.scalar not in scalars:
            raise UsageError(
                f"--bisect {self.text}: the agent records no {self.scalar}; it records "
                f"{', '.join(sorted(scalars))}"
            )
        value = scalars[self.scalar]
        return f"{self.scalar} is {value:.6g}" if self.compare(value, self.limit) else ""


class DrawnRow(NamedTuple):
    """A row of a batch.

    Args:
        number: since the run began, in its source.
        source: its name.
        manager: its id where that is known, else its number; "" of a data set.
        actor, version: which has made it, by which model; -1 of a data set.
        age: optimization steps since that model.
        rows_since: rows inserted since.
        weight: of importance sampling; 1 without.
        td_error: its absolute TD error; None where the agent computes none.
    """

    number: int
    source: str
    manager: str
    actor: int
    version: int
    age: int
    rows_since: int
    weight: float
    td_error: float | None


class FoundStep(NamedTuple):
    """The first step that meets a condition.

    Args:
        step: the optimization step.
        what: meets it.
        scalars: that the agent records, at this step.
        rows: of the batch, in its order.
        batch: its columns, with ``indices``, and ``weights`` and ``td_errors`` where there are any.
    """

    step: int
    what: str
    scalars: Mapping[str, float]
    rows: tuple[DrawnRow, ...]
    batch: Mapping[str, NDArray[Any]]

    def worst(self, count: int) -> list[DrawnRow]:
        """The rows of the largest TD errors, those that are not finite first."""

        def key(row: DrawnRow) -> float:
            error = row.td_error
            return -math.inf if error is None or not math.isfinite(error) else -error

        return sorted(self.rows, key=key)[:count]

    def write(self, path: Path) -> None:
        """Write the batch to an ``.npz`` file.

        Raises:
            OSError: naming the file; of a full disk, too, which is left without half of it.
        """
        with replacing(path) as aside, aside.open("wb") as file:
            named: dict[str, Any] = {n.replace("/", "."): array for n, array in self.batch.items()}
            np.savez(file, **named)


class _Step(NamedTuple):
    """A step that was done."""

    loaded: DeviceBatch
    scalars: Mapping[str, float]
    td_errors: NDArray[Any] | None


class StepSearch(Watch):
    """Watches an execution for the first step that meets a condition, behind which it ends.

    Args:
        run_id: of the run.
    """

    def __init__(self, condition: Condition, run_id: str) -> None:
        self._condition = condition
        self._run_id = run_id
        self.found: FoundStep | None = None

    def begin(
        self, agent: Agent, replay: ReplayBuffer, loader: DeviceLoader, config: RunConfig
    ) -> None:
        """Have each step of an agent record its scalars, and see it with its batch."""
        load, opt = loader.load, agent.opt
        loaded: list[DeviceBatch] = []

        def load_and_keep() -> DeviceBatch:
            loaded[:] = [load()]
            return loaded[0]

        def opt_and_look(*given: Any, record: bool = False) -> OptResult:
            result = opt(*given, record=True)
            if self.found is None:
                self._look(agent, replay, loaded[0], result)
            return OptResult(result.td_errors, result.record if record else {})

        vars(loader)["load"] = load_and_keep
        vars(agent)["opt"] = opt_and_look

    def ends(self, opt_steps: int) -> bool:
        return self.found is not None

    def _look(
        self, agent: Agent, replay: ReplayBuffer, loaded: DeviceBatch, result: OptResult
    ) -> None:
        errors = result.td_errors
        scalars = {name: float(value) for name, value in result.record.items()}
        td_errors = None if errors is None else errors.detach().abs().cpu().numpy()
        step = _Step(loaded, scalars, td_errors)
        if what := self._condition.find(step):
            rows = tuple(_describe_rows(replay, step, agent.opt_steps, self._run_id))
            self.found = FoundStep(agent.opt_steps, what, scalars, rows, _arrays_of(step))


def _find_not_finite(step: _Step) -> str:
    """Name a number of a step that is not finite; "" where all are."""
    for name, column in step.loaded.batch.items():
        if column.dtype.is_floating_point and not bool(torch.isfinite(column).all()):
            return f"the batch's {name} is not finite"
    if step.td_errors is not None and not np.isfinite(step.td_errors).all():
        return f"{int((~np.isfinite(step.td_errors)).sum()):,} TD errors are not finite"
    wrong = [name for name, value in step.scalars.items() if not math.isfinite(value)]
    return f"{', '.join(wrong)} is not finite" if wrong else ""


def _arrays_of(step: _Step) -> dict[str, NDArray[Any]]:
    loaded = step.loaded
    arrays = {name: column.detach().cpu().numpy().copy() for name, column in loaded.batch.items()}
    arrays["indices"] = loaded.indices.copy()
    if loaded.weights is not None:
        arrays["weights"] = loaded.weights.cpu().numpy().copy()
    if step.td_errors is not None:
        arrays["td_errors"] = step.td_errors
    return arrays


def _describe_rows(
    replay: ReplayBuffer, step: _Step, opt_steps: int, run_id: str
) -> list[DrawnRow]:
    drawn: list[DrawnRows]
    if isinstance(replay, MixedReplay):
        drawn, names = [*replay.replays], replay.names
    else:
        assert isinstance(replay, DrawnRows), "others are not executed again"
        drawn, names = [replay], [ACTORS]
    ids = manager_names(drawn[0].rows.original, run_id)
    weights = step.loaded.weights
    rows = []
    for place, index in enumerate(step.loaded.indices.tolist()):
        source, number = index >> NUMBER_BITS, index & ((1 << NUMBER_BITS) - 1)
        of = drawn[source]
        manager, actor, version = (
            _value(of.rows.original, name, number) for name in (MANAGER, ACTOR, VERSION)
        )
        is_played = version >= 0
        rows.append(
            DrawnRow(
                number,
                names[source],
                ids.get(manager, f"number {manager}") if is_played else "",
                actor if is_played else -1,
                version,
                max(0, opt_steps - version) if is_played else 0,
                of.live[1] - number,
                1.0 if weights is None else float(weights[place]),
                None if step.td_errors is None else float(step.td_errors[place]),
            )
        )
    return rows


def _value(rows: Rows, column: str, number: int) -> int:
    """What a row has in a column of numbers; -1 where there is no such column."""
    if column not in rows.columns:
        return -1
    values = rows.columns[column]
    return int(values[number % len(values)])
