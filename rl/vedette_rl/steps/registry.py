"""Step processors by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from vedette_rl.core import StepProcessor
from vedette_rl.errors import UnknownNameError
from vedette_rl.named import import_by_name, is_import_name
from vedette_rl.steps.n_step import NStep


def make_step_processor(
    name: str, n: int, discount: float, envs: int, dtype: np.dtype[Any]
) -> StepProcessor:
    """The processor of this name: ``n_step``, or ``module:Name`` of your own, which is made with
    the same arguments as `NStep`.

    Raises:
        UnknownNameError: there is none, or what is there is no `StepProcessor`.
    """
    if name == "n_step":
        return NStep(n, discount, envs, dtype)
    if not is_import_name(name):
        raise UnknownNameError("actors.step_processor", name, "there are n_step and module:Name")
    own = import_by_name("actors.step_processor", name)(n, discount, envs, dtype)
    if not isinstance(own, StepProcessor):
        raise UnknownNameError("actors.step_processor", name, "it is no StepProcessor")
    return own
