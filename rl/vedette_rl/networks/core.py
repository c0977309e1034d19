"""The sizes and arrays of a recurrent core, a GRU between an encoder and the layers. No torch.

The state h is the output. With features x (Cho et al. 2014, in the form of `torch.nn.GRU`):

* r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
* z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
* n = tanh(W_in x + b_in + r (W_hn h + b_hn))
* h' = (1 - z) n + z h

h is 0 where an episode begins. Names and layout of the arrays are torch's: the rows of r, z and n
lie one below the other.

Shapes: E environments, F features, H numbers of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CORE = "core"
"""The name of a core among a model's arrays."""


@dataclass(frozen=True, slots=True)
class GruSizes:
    """The sizes of a GRU.

    Args:
        features: F.
        memory: H.
    """

    features: int
    memory: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays, by name."""
        gates = 3 * self.memory
        return {
            f"{CORE}.weight_ih_l0": (gates, self.features),
            f"{CORE}.weight_hh_l0": (gates, self.memory),
            f"{CORE}.bias_ih_l0": (gates,),
            f"{CORE}.bias_hh_l0": (gates,),
        }

    def describe(self) -> list[Any]:
        """The layer as the wire's page names it."""
        return ["gru", *self.shapes, self.features, self.memory]


class NumpyGru:
    """One step of a GRU, with the weights of a model that was checked."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        # Laid out as they are multiplied: many rows are acted on between two models.
        self._of_features = np.ascontiguousarray(arrays[f"{CORE}.weight_ih_l0"].T)
        self._of_memory = np.ascontiguousarray(arrays[f"{CORE}.weight_hh_l0"].T)
        self._bias_of_features = arrays[f"{CORE}.bias_ih_l0"]
        self._bias_of_memory = arrays[f"{CORE}.bias_hh_l0"]

    def __call__(self, x_EF: NDArray[np.float32], h_EH: NDArray[np.float32]) -> NDArray[np.float32]:
        """The next state ``(E, H)``."""
        of_x = x_EF.dot(self._of_features)
        of_x += self._bias_of_features
        of_h = h_EH.dot(self._of_memory)
        of_h += self._bias_of_memory
        size = h_EH.shape[1]
        r_z = _sigmoid(of_x[:, : 2 * size] + of_h[:, : 2 * size])
        r, z = r_z[:, :size], r_z[:, size:]
        n = np.tanh(of_x[:, 2 * size :] + r * of_h[:, 2 * size :])
        next_EH: NDArray[np.float32] = n + z * (h_EH - n)
        return next_EH


def _sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of any size, without an overflow."""
    half = np.float32(0.5)
    y: NDArray[np.float32] = np.tanh(x * half) * half + half
    return y
