"""What the arrays of a model must look like. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.errors import ModelMismatchError

Shapes = dict[str, tuple[int, ...]]
"""Names and shapes of a model's arrays, all float32."""


def check_arrays(expected: Mapping[str, tuple[int, ...]], got: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that are not exactly those expected.

    Raises:
        ModelMismatchError: names the first array that is missing, unknown or of another shape.
    """
    for name, shape in expected.items():
        wanted = f"float32 {shape}"
        if name not in got:
            raise ModelMismatchError(name, wanted, "nothing")
        array = got[name]
        if array.shape != shape or array.dtype != np.float32:
            raise ModelMismatchError(name, wanted, f"{array.dtype} {array.shape}")
    for name in got:
        if name not in expected:
            raise ModelMismatchError(name, "nothing", "an array")
