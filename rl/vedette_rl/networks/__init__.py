"""Networks, and the blocks that custom agents are made of.

A name is loaded at its first use: those that need no torch load none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette_rl.import_by_name import lazy_names

if TYPE_CHECKING:
    from vedette_rl.networks.adam import VectorAdam as VectorAdam
    from vedette_rl.networks.encoder import FlatEncoder as FlatEncoder
    from vedette_rl.networks.encoder import ImageEncoder as ImageEncoder
    from vedette_rl.networks.encoder import build_encoder as build_encoder
    from vedette_rl.networks.layers import MlpSizes as MlpSizes
    from vedette_rl.networks.numpy_nets import check_arrays as check_arrays
    from vedette_rl.networks.numpy_nets import flatten_observation as flatten_observation
    from vedette_rl.networks.observation import choose_input as choose_input
    from vedette_rl.networks.observation import count_features as count_features
    from vedette_rl.networks.observation import flat_parts as flat_parts
    from vedette_rl.networks.parameter_vector import ParameterVector as ParameterVector
    from vedette_rl.networks.seeding import build_seeded as build_seeded
    from vedette_rl.networks.torch_network import Mlp as Mlp

_MODULES = {
    "FlatEncoder": "networks.encoder",
    "ImageEncoder": "networks.encoder",
    "Mlp": "networks.torch_network",
    "MlpSizes": "networks.layers",
    "ParameterVector": "networks.parameter_vector",
    "VectorAdam": "networks.adam",
    "build_encoder": "networks.encoder",
    "build_seeded": "networks.seeding",
    "check_arrays": "networks.numpy_nets",
    "choose_input": "networks.observation",
    "count_features": "networks.observation",
    "flat_parts": "networks.observation",
    "flatten_observation": "networks.numpy_nets",
}
"""The module of each public name, below `vedette_rl`."""

__all__ = [*_MODULES]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
