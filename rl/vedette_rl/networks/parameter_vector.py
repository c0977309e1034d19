"""All parameters of a network as one vector.

Clipping, Adam (`vedette_rl.networks.adam`), the target's update and the copy for the actors are
then one operation each, however many layers there are: a step of a small network is mostly the cost
of starting operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vedette_rl.device.host_copy import HostCopy, Pending, snapshot
from vedette_rl.errors import ModelMismatchError
from vedette_rl.storage.buffer_pool import BufferPool

if TYPE_CHECKING:  # agents import networks
    pass


_ALIGNMENT = 16
"""Floats: every parameter begins on a cache line, as if it had been allocated by itself."""


class ParameterVector:
    """Moves a network's parameters into one vector, of which they are views from now on.

    Args:
        network: all its parameters are float32 and on one device. One that needs no gradient
            (``requires_grad=False``) is frozen: it travels and is saved like the others, and
            nothing here moves it.
        learns: True if the others have gradients, which are then views of `grad`.

    Attributes:
        data: the vector; what lies between two parameters is 0.
        grad: its gradient, of the same layout. Backward passes add to it; a frozen parameter's
            part stays 0.
        parameters: those that learn.
    """

    def __init__(self, network: nn.Module, *, learns: bool) -> None:
        parameters = dict(network.named_parameters())
        self._places: dict[str, tuple[int, int, torch.Size]] = {}
        end = 0
        for name, parameter in parameters.items():
            self._places[name] = (end, parameter.numel(), parameter.shape)
            end += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        self._memory = BufferPool()
        device = next(iter(parameters.values())).device
        self.data = torch.zeros(end, device=device)
        self.grad = torch.zeros(end if learns else 0, device=device)
        self._frozen = [name for name, p in parameters.items() if not p.requires_grad]
        grads = self.views(self.grad) if learns else {}
        for name, view in self.views(self.data).items():
            parameter = parameters[name]
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.requires_grad_(learns and parameter.requires_grad)
            parameter.grad = grads[name] if parameter.requires_grad else None
        self.parameters = [p for p in parameters.values() if p.requires_grad]

    def views(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of a vector of this layout, by parameter name."""
        return {
            name: vector[start : start + size].view(shape)
            for name, (start, size, shape) in self._places.items()
        }

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """A copy of the parameters in numpy, by name."""
        return self.pending_arrays().value

    def pending_arrays(self) -> Pending[dict[str, NDArray[np.float32]]]:
        """`arrays`, of a copy that is begun."""
        copy = snapshot(self.data, self._memory)
        return Pending(lambda: self._by_name(copy))

    def get(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """A copy on the CPU of a vector of this layout, by parameter name."""
        return self.pending(vector).value

    def pending(self, vector: torch.Tensor) -> Pending[dict[str, torch.Tensor]]:
        """`get`, of a copy that is begun."""
        copy = snapshot(vector, self._memory)
        return Pending(
            lambda: {name: torch.from_numpy(array) for name, array in self._by_name(copy).items()}
        )

    def _by_name(self, copy: HostCopy) -> dict[str, NDArray[np.float32]]:
        # Views are numpy's: torch takes ten times as long to make one.
        vector = copy.array()
        return {
            name: vector[start : start + size].reshape(shape)
            for name, (start, size, shape) in self._places.items()
        }

    def set(self, vector: torch.Tensor, named: Mapping[str, torch.Tensor]) -> None:
        """Write a vector of this layout in place.

        Raises:
            ModelMismatchError: names the first tensor that is missing or of another shape.
        """
        for name, view in self.views(vector).items():
            if name not in named:
                raise ModelMismatchError(name, f"shape {tuple(view.shape)}", "nothing")
            if named[name].shape != view.shape:
                raise ModelMismatchError(
                    name, f"shape {tuple(view.shape)}", f"shape {tuple(named[name].shape)}"
                )
            view.copy_(named[name])

    def frozen_views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Return the parts of a vector of this layout that belong to frozen parameters."""
        views = self.views(vector)
        return [views[name] for name in self._frozen]

    def copy_parts(self, other: ParameterVector, prefixes: tuple[str, ...]) -> None:
        """Copy the parameters whose names begin with these: the first ones of both networks."""
        ours, theirs = (
            [(name, place) for name, place in vector._places.items() if name.startswith(prefixes)]
            for vector in (self, other)
        )
        assert ours == theirs, "both networks have the same parts at the same places"
        end = max(start + size for _, (start, size, _) in ours)
        self.data[:end].copy_(other.data[:end])

    def soft_update(self, online: ParameterVector, tau: float) -> None:
        """Update a target network by Polyak averaging: theta' += tau (theta - theta'); 1 copies."""
        if tau == 1.0:
            self.data.copy_(online.data)
        else:
            self.data.lerp_(online.data, tau)
