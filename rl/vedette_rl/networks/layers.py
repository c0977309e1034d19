"""The forward pass behind an encoder, described once for numpy and torch. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vedette_rl.networks.config import NetworkConfig
from vedette_rl.networks.core import GruSizes
from vedette_rl.networks.observation import (
    NORM_EPS,
    BuiltInInput,
    Image,
    NetworkInput,
    describe_encoder,
    observation_parts,
)

Array = Any
"""An array of numpy or a tensor of torch."""


Architecture = Literal["mlp", "layer_norm", "residual"]
"""What is between the linear layers of a perceptron; see `MlpSizes`."""

CriticArchitecture = Literal[Architecture, "batch_norm", "batch_renorm"]
"""The same of critics, which torch alone computes."""

BATCH_NORMS = ("batch_norm", "batch_renorm")
"""Those that normalise over a batch, of critics that do without targets."""

TanhArchitecture = Literal[Architecture, "tanh"]
"""The same of on-policy agents."""

_EXPANSION = 4
"""How many times wider than the block the hidden layer of a residual block is (SimBa: 4)."""


@dataclass(frozen=True, slots=True)
class MlpSizes:
    """Layers of a multilayer perceptron: features in, of each layer, out.

    Normalization scales each row to mean 0 and variance 1, and learns no gain and bias of its own.
    In ``residual`` the linear layer behind it learns both. In ``layer_norm`` a ReLU is between
    them: the layer behind learns a positive gain, but all units have the ReLU's threshold at 0.

    Args:
        sizes: with one size it is the identity.
        relu_last: the last layer's output goes through a ReLU too.
        architecture: ``mlp`` has a ReLU after each hidden layer, ``layer_norm`` a normalization
            before that, and ``residual`` has a residual block in each one's place, all of the
            first one's width (SimBa, Lee et al. 2024, arXiv:2410.09754, section 4).
            ``batch_norm`` and ``batch_renorm`` have batch normalization in front of each linear
            layer, of an `EnsembleMlp` alone. ``tanh`` has tanh in the ReLU's place.
    """

    sizes: tuple[int, ...]
    relu_last: bool = False
    architecture: CriticArchitecture | TanhArchitecture = "mlp"

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """Features in and out of each linear layer, in the order of the weights' names."""
        return _linear_layers(self.sizes, self.architecture)

    def describe(self, name: str) -> list[list[Any]]:
        """The steps of `forward` with the arrays under `name`, as the wire's page names them."""
        traced: _Trace = self.forward(_TraceSteps(name, self.linear), _Trace(()))
        return [list(step) for step in traced.steps]

    def forward(self, steps: PerceptronSteps, x: Array) -> Array:
        """The output for `x`, of layers whose steps numpy or torch do."""
        last = len(self.linear) - 1
        if self.architecture == "residual" and last > 1:
            x = steps.linear(0, x)
            for k in range(1, last, 2):
                x = x + steps.linear(k + 1, steps.relu(steps.linear(k, steps.normalize(x))))
            x = steps.linear(last, steps.normalize(x))
            return steps.relu(x) if self.relu_last else x
        for k in range(last + 1):
            x = steps.linear(k, x)
            if k < last and self.architecture == "layer_norm":
                x = steps.normalize(x)
            if k < last and self.architecture == "tanh":
                x = steps.tanh(x)
            elif k < last or self.relu_last:
                x = steps.relu(x)
        return x


@cache  # each forward pass asks for it
def _linear_layers(
    sizes: tuple[int, ...], architecture: CriticArchitecture | TanhArchitecture
) -> tuple[tuple[int, int], ...]:
    if architecture != "residual" or len(sizes) < 3:
        return tuple(pairwise(sizes))
    first = sizes[0]
    width = sizes[1]
    last = sizes[-1]
    block = ((width, _EXPANSION * width), (_EXPANSION * width, width))
    return ((first, width), *block * (len(sizes) - 2), (width, last))


class PerceptronSteps(Protocol):
    """The steps of a perceptron's forward pass, in numpy or torch, for one network or several."""

    def linear(self, k: int, x: Array) -> Array:
        """Layer `k`'s product and bias."""
        ...

    def normalize(self, x: Array) -> Array:
        """Each row with mean 0 and variance 1."""
        ...

    def relu(self, x: Array) -> Array:
        """The positive part; `x` may be overwritten."""
        ...

    def tanh(self, x: Array) -> Array:
        """The hyperbolic tangent; `x` may be overwritten."""
        ...


@dataclass(frozen=True, slots=True)
class _Trace:
    """Stands for features in a forward pass, and knows the steps that led to them."""

    steps: tuple[tuple[Any, ...], ...]

    def __add__(self, block: _Trace) -> _Trace:
        """A residual block, whose steps begin with these."""
        return _Trace((*self.steps, ("save",), *block.steps[len(self.steps) :], ("add",)))


@dataclass(frozen=True, slots=True)
class _TraceSteps:
    """Traces a perceptron's steps; see `PerceptronSteps`."""

    name: str
    sizes: tuple[tuple[int, int], ...]

    def linear(self, k: int, x: _Trace) -> _Trace:
        arrays = f"{self.name}.{k}.weight", f"{self.name}.{k}.bias"
        return _Trace((*x.steps, ("linear", *arrays, *self.sizes[k])))

    def normalize(self, x: _Trace) -> _Trace:
        return _Trace((*x.steps, ("normalize", NORM_EPS)))

    def relu(self, x: _Trace) -> _Trace:
        return _Trace((*x.steps, ("relu",)))

    def tanh(self, x: _Trace) -> _Trace:
        return _Trace((*x.steps, ("tanh",)))


class Layers:
    """The layers behind the encoder, and the forward pass through them.

    A subclass fills `mlps` and `forward`, which numpy and torch both call::

        class MyLayers(Layers):
            def __init__(self, config: MyConfig, sizes: tuple[int, ...], actions: int) -> None:
                self.mlps = {"q": MlpSizes((*sizes, actions))}

            def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
                return xp.tanh(net.q(x_BF))

    Attributes:
        mlps: sizes by name, in the order in which weights are drawn.
        vectors: sizes by name of learned vectors that are no perceptron's.
    """

    mlps: dict[str, MlpSizes]
    vectors: Mapping[str, int] = MappingProxyType({})

    def constants(self, xp: Any) -> dict[str, Array]:
        """Arrays that are not learned, by name; float32 in the end."""
        return {}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """The output.

        Args:
            xp: numpy or torch; use what both have.
            net: has the perceptrons, vectors and constants as attributes.
            x_BF: features ``(B, F)`` from the encoder.
            inputs: further inputs of the network.
        """
        raise NotImplementedError


LayersFactory = Callable[[Any, tuple[int, ...], int], Layers]
"""Makes `Layers` of a configuration, sizes ``(features, *hidden)``, and the size of an action."""


def layer_sizes(config: NetworkConfig, seen: NetworkInput, count: int) -> tuple[int, ...]:
    """The sizes ``(features, *hidden)`` behind an encoder of `count` features, or behind a
    recurrent core."""
    hidden = config.cnn_hidden_sizes if isinstance(seen, Image) else config.hidden_sizes
    return (config.core_size or count, *hidden)


@dataclass(frozen=True, slots=True)
class NormalizedColumns:
    """The observation's columns of floats, which running statistics can normalise.

    Each feature becomes ``(x - mean) scale``, clipped to +- 10. Pixels, categories and bits stay as
    they are. The statistics are two arrays of the model, ``normalizer.mean`` and
    ``normalizer.scale``, over all these columns one after another.

    Args:
        columns: name and shape of each.
    """

    columns: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """F: numbers in all of them."""
        return sum(int(np.prod(shape)) for _, shape in self.columns)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays of the statistics: none where there is nothing to normalise."""
        return dict.fromkeys((MEAN, SCALE), (self.size,)) if self.columns else {}

    def split(self, vector_F: Array) -> dict[str, Array]:
        """The part of a vector of statistics that belongs to each column, in its shape; of a column
        of single numbers ``(1,)``, so that torch promotes float16 as numpy does."""
        parts = {}
        first = 0
        for name, shape in self.columns:
            size = int(np.prod(shape))
            parts[name] = vector_F[first : first + size].reshape(shape or (1,))
            first += size
        return parts


def float_parts(space: gym.Space[Any]) -> dict[str, spaces.Box]:
    """The columns that are floating-point numbers: no pixels, categories and bits."""
    return {
        name: part
        for name, part in observation_parts(space).items()
        if isinstance(part, spaces.Box) and np.issubdtype(part.dtype, np.floating)
    }


def normalized_columns(config: NetworkConfig, space: gym.Space[Any]) -> NormalizedColumns:
    """The columns of an observation space that an agent of this configuration normalises."""
    parts = float_parts(space) if config.normalize_observations else {}
    return NormalizedColumns(tuple((name, tuple(part.shape)) for name, part in parts.items()))


MEAN, SCALE = "normalizer.mean", "normalizer.scale"
"""Names of the statistics among a model's arrays."""

_LARGEST = 10.0
"""Standard deviations: what is further from the mean counts as this far."""


def normalize_columns(
    obs: Mapping[str, Array], mean: Mapping[str, Array], scale: Mapping[str, Array]
) -> dict[str, Array]:
    """The columns ``obs...``, normalised where there are statistics; in numpy and in torch."""
    normalized = {
        name: ((obs[name] - mean[name]) * scale[name]).clip(-_LARGEST, _LARGEST) for name in mean
    }
    return {**obs, **normalized}


def describe_network(
    layers: Layers,
    seen: BuiltInInput,
    space: gym.Space[Any],
    columns: NormalizedColumns,
    core: GruSizes | None = None,
) -> dict[str, Any]:
    """Describe a network's inputs, their normalization and its layers, as the wire's page says.

    Args:
        core: is the first layer of the first network; None: there is none.
    """
    normalized = {name for name, _ in columns.columns}
    parts, branches = describe_encoder(seen, space)
    networks = [[name, mlp.describe(name)] for name, mlp in layers.mlps.items()]
    if core is not None:
        networks[0][1] = [core.describe(), *networks[0][1]]
    return {
        "inputs": [
            [p.column, p.width, p.scale, list(p.classes), list(p.starts), p.column in normalized]
            for p in parts
        ],
        "normalize": [MEAN, SCALE, _LARGEST] if normalized else [],
        **({"branches": branches} if branches else {}),
        "networks": networks,
    }
