"""Networks, and the blocks that agents of your own are made of.

A name is loaded at its first use: those that need no torch load none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vedette_rl.networks.encoder import FlatEncoder as FlatEncoder
    from vedette_rl.networks.encoder import ImageEncoder as ImageEncoder
    from vedette_rl.networks.encoder import build_encoder as build_encoder
    from vedette_rl.networks.layers import MlpSizes as MlpSizes
    from vedette_rl.networks.numpy_nets import check_arrays as check_arrays
    from vedette_rl.networks.observation import choose_input as choose_input
    from vedette_rl.networks.observation import count_features as count_features
    from vedette_rl.networks.observation import flat_parts as flat_parts
    from vedette_rl.networks.observation import flatten_observation as flatten_observation
    from vedette_rl.networks.parameter_vector import ParameterVector as ParameterVector
    from vedette_rl.networks.parameter_vector import VectorAdam as VectorAdam
    from vedette_rl.networks.parameter_vector import build_seeded as build_seeded
    from vedette_rl.networks.torch_network import Mlp as Mlp

_MODULES = {
    "FlatEncoder": "encoder",
    "ImageEncoder": "encoder",
    "Mlp": "torch_network",
    "MlpSizes": "layers",
    "ParameterVector": "parameter_vector",
    "VectorAdam": "parameter_vector",
    "build_encoder": "encoder",
    "build_seeded": "parameter_vector",
    "check_arrays": "numpy_nets",
    "choose_input": "observation",
    "count_features": "observation",
    "flat_parts": "observation",
    "flatten_observation": "observation",
}
"""The module of each public name."""

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
