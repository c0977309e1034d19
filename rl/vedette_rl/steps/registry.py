"""Step processors by name: makes them, and reads what they declare."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vedette_rl.core import RowColumn, StepProcessor
from vedette_rl.core.protocols import implements, missing_members
from vedette_rl.envs.spaces import Spaces
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.errors import UnknownNameError
from vedette_rl.import_by_name import import_by_name, is_import_name
from vedette_rl.steps.hindsight import Hindsight
from vedette_rl.steps.n_step import NStep


def step_processor(name: str) -> Callable[..., Any]:
    """Return the class of this name: ``n_step``, ``her``, or a custom ``module:Name``.

    Raises:
        UnknownNameError: there is none.
    """
    if name == "n_step":
        return NStep
    if name == "her":
        return Hindsight
    if not is_import_name(name):
        why = "there are n_step, her and module:Name"
        raise UnknownNameError("actors.step_processor", name, why)
    processor: Callable[..., Any] = import_by_name("actors.step_processor", name)
    return processor


def make_step_processor(
    name: str, n: int, discount: float, envs: int, dtype: np.dtype[Any], *, her_goals: int = 4
) -> StepProcessor:
    """The processor of this name, made with the arguments of `NStep`.

    Args:
        her_goals: the goals of each transition, for ``her`` alone.

    Raises:
        UnknownNameError: there is none, or what is there is no `StepProcessor`.
        HindsightError: ``her`` cannot relabel these transitions.
    """
    further = {"goals": her_goals} if name == "her" else {}
    custom = step_processor(name)(n, discount, envs, dtype, **further)
    if not implements(custom, StepProcessor):
        lacks = ", ".join(missing_members(custom, StepProcessor))
        raise UnknownNameError(
            "actors.step_processor", name, f"it is no StepProcessor: it lacks {lacks}"
        )
    return custom


def prepare_steps(processor: StepProcessor, envs: VectorEnvironment, seed: int) -> None:
    """Give a processor that wants them its environments, and a seed, before the first step."""
    prepare = getattr(processor, "prepare", None)
    if prepare is not None:
        prepare(envs, seed)


def rows_per_step(name: str, *, her_goals: int = 4) -> float:
    """The transitions that the processor of this name makes of a step, on average.

    Raises:
        UnknownNameError: there is no such processor, or it declares no positive number.
    """
    if name == "her":
        return 1.0 + her_goals
    declared = getattr(step_processor(name), "rows_per_step", 1.0)
    if isinstance(declared, (int, float)) and 0.0 < declared < math.inf:
        return float(declared)
    why = f"its rows_per_step is {declared!r}, no positive number"
    raise UnknownNameError("actors.step_processor", name, why)


def step_columns(name: str, spaces: Spaces) -> tuple[RowColumn, ...]:
    """The columns that the processor of this name adds to transitions.

    Raises:
        UnknownNameError: there is no such processor.
    """
    declare = getattr(step_processor(name), "columns", None)
    return tuple(declare(spaces)) if declare else ()
