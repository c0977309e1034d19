"""Networks in torch, from the same description as in numpy: for learning, acting and exporting.

Shapes: B rows, F features, D action dimensions, K critics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from vedette_rl.core.columns import BURNED, Columns, select_part
from vedette_rl.core.learning import ModelInfo, State
from vedette_rl.device import ranks
from vedette_rl.device.host_copy import Pending, read_later
from vedette_rl.errors import ModelMismatchError
from vedette_rl.networks.config import NetworkConfig
from vedette_rl.networks.encoder import (
    BuiltInEncoder,
    CustomEncoder,
    CustomQNetwork,
    Obs,
    build_encoder,
)
from vedette_rl.networks.layers import (
    BATCH_NORMS,
    MEAN,
    SCALE,
    LayersFactory,
    MlpSizes,
    NormalizedColumns,
    layer_sizes,
    normalize_columns,
)
from vedette_rl.networks.numpy_nets import check_arrays
from vedette_rl.networks.observation import NORM_EPS, CustomInput, NetworkInput, choose_input

_VARIANCE_EPS = 1e-6
"""Features that stand almost still are scaled up by no more than a thousand."""

_OUTLIER, _BEFORE_OUTLIERS = 30.0, 100
"""Deviations from the mean beyond which a number counts as so many, after so many batches."""
_OUTLIERS_MAX, _WITHOUT_OUTLIERS = _OUTLIER**-2, 1000
"""The largest share of outliers, of all numbers and so many batches without any. No distribution
has a larger one (Chebyshev's inequality): where more numbers are that far, the deviation is wrong,
as that of a contact force is before the first contact, and all of them count as they are."""
_LARGEST = 1e17
"""What is further from the mean counts as this far: squares and their sums are float32's."""

_BATCH_NORM_RATE, BATCH_NORM_EPS = 0.01, 1e-3
"""How far a batch moves the running statistics, and what is added to a variance (CrossQ's code)."""

_RENORM_WARMUP, _RENORM_R_MAX, _RENORM_D_MAX = 100_000, 3.0, 5.0
"""Batches before `batch_renorm` differs from `batch_norm`, and the bounds of r and d (CrossQ's
code)."""


class _TorchSteps:
    """The steps that one perceptron and several have in common; see `PerceptronSteps`."""

    def normalize(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:], eps=NORM_EPS)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x, inplace=True)

    def tanh(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


class Mlp(_TorchSteps, nn.ModuleList):
    """One perceptron: a list of its linear layers."""

    def __init__(self, sizes: MlpSizes) -> None:
        super().__init__(nn.Linear(before, after) for before, after in sizes.linear)
        self._sizes = sizes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(..., sizes[0])`` to ``(..., sizes[-1])``."""
        output: torch.Tensor = self._sizes.forward(self, x)
        return output

    def linear(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """See `PerceptronSteps`."""
        output: torch.Tensor = self[k](x)
        return output


class EnsembleMlp(_TorchSteps, nn.Module):
    """K perceptrons on the same input.

    With ``batch_norm`` each linear layer takes ``gain (x - mean) / deviation + offset`` (Ioffe &
    Szegedy 2015, arXiv:1502.03167), by the statistics of this batch or by running ones, which are
    parameters without a gradient. The layer could learn the offset by its own bias, but not as
    fast: there a step of Adam moves the mean of a value by one step size, here by eight at first.

    ``batch_renorm`` is the same for so many batches, and from then on normalises a batch nearly as
    the running statistics do: to ``gain (r (x - mean) / deviation + d) + offset``, r and d from
    both statistics, within bounds and without a gradient (Ioffe 2017, arXiv:1702.03275, algorithm
    1).

    Args:
        members: K.
        sizes: the sizes of each.
    """

    def __init__(self, members: int, sizes: MlpSizes) -> None:
        super().__init__()
        self.weights = nn.ParameterList()  # (K, before, after)
        self.biases = nn.ParameterList()  # (K, 1, after)
        for before, after in sizes.linear:
            # the same distribution as torch.nn.Linear's
            bound = before**-0.5
            self.weights.append(torch.empty(members, before, after).uniform_(-bound, bound))
            self.biases.append(torch.empty(members, 1, after).uniform_(-bound, bound))
        self._members = members
        self._sizes = sizes
        self._normalizes = sizes.architecture in BATCH_NORMS
        self._counts = False
        self.gains = nn.ParameterList()  # (K, before)
        self.offsets = nn.ParameterList()  # (K, before)
        self.statistics = nn.ParameterList()  # mean and variance, (2, K, before)
        for before, _ in sizes.linear if self._normalizes else ():
            zero, one = torch.zeros(members, before), torch.ones(members, before)
            self.gains.append(nn.Parameter(one.clone()))
            self.offsets.append(nn.Parameter(zero.clone()))
            statistics = torch.stack([zero, one])
            self.statistics.append(nn.Parameter(statistics, requires_grad=False))
        self._renormalizes = sizes.architecture == "batch_renorm"
        if self._renormalizes:  # batches, up to `_RENORM_WARMUP`
            self.counted = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, x_BF: torch.Tensor, counts: bool = False) -> torch.Tensor:
        """``(K, B, sizes[-1])``.

        Args:
            x_BF: the input.
            counts: normalise by this batch's statistics, and count it in the running ones.
        """
        self._counts = counts
        x_KBF = x_BF.expand(self._members, *x_BF.shape)
        output: torch.Tensor = self._sizes.forward(self, x_KBF)
        if counts and self._renormalizes:
            self.counted.detach().add_(1.0).clamp_(max=_RENORM_WARMUP)
        return output

    def _affine(self, k: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gain and offset ``(K, before)`` of layer `k`'s normalised input, with r and d in them."""
        gain, offset = self.gains[k], self.offsets[k]
        if not (self._counts and self._renormalizes):
            return gain, offset
        with torch.no_grad():
            running_mean, running_variance = self.statistics[k]
            x = x.float()  # as torch's batch normalization has its own, also of bfloat16
            # `torch.var_mean` takes twenty times as long on a CPU
            mean = x.mean(dim=1)
            variance = (x - mean.unsqueeze(1)).square_().mean(dim=1)
            deviation = (running_variance + BATCH_NORM_EPS).sqrt()
            r = ((variance + BATCH_NORM_EPS).sqrt() / deviation).clamp(
                1.0 / _RENORM_R_MAX, _RENORM_R_MAX
            )
            d = ((mean - running_mean) / deviation).clamp(-_RENORM_D_MAX, _RENORM_D_MAX)
            warm = self.counted >= _RENORM_WARMUP
            r, d = torch.where(warm, r, 1.0), torch.where(warm, d, 0.0)
        return gain * r, gain * d + offset

    def _normalize_batch(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """Layer `k`'s input by batch normalization, of each member by itself."""
        if x.is_cuda:
            return self._normalize_together(k, x)
        statistics = self.statistics[k].detach()
        settings = self._counts, _BATCH_NORM_RATE, BATCH_NORM_EPS
        members = zip(x, *statistics, *self._affine(k, x), strict=True)
        return torch.stack(
            [
                functional.batch_norm(one, mean, variance, gain, offset, *settings)
                for one, mean, variance, gain, offset in members
            ]
        )

    def _normalize_together(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """The same in one operation, which has all features of all members as its channels: a GPU
        has fewer kernels to start. On a CPU it takes 2 % of a step longer, for copies."""
        mean, variance = self.statistics[k].detach().flatten(1)
        gain, offset = self._affine(k, x)
        normalized = functional.batch_norm(
            x.transpose(0, 1).flatten(1),
            mean,
            variance,
            gain.flatten(),
            offset.flatten(),
            self._counts,
            _BATCH_NORM_RATE,
            BATCH_NORM_EPS,
        )
        return normalized.view(len(normalized), self._members, -1).transpose(0, 1)

    def linear(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """See `PerceptronSteps`."""
        weight, bias = self.weights[k], self.biases[k]
        if self._normalizes:
            x = self._normalize_batch(k, x)
        if weight.shape[2] == 1:  # libraries of a CPU take five times as long for such a product
            value: torch.Tensor = (x * weight.transpose(1, 2)).sum(dim=2, keepdim=True) + bias
            return value
        return torch.baddbmm(bias, x, weight)


class TorchParts(nn.Module):
    """An encoder and layers, and what may be between them.

    Args:
        config: the layers' sizes.
        seen: the part of the observation that it takes.
        layers: describes the layers.
        size: the size of an action.
    """

    def __init__(
        self, config: NetworkConfig, seen: NetworkInput, layers: LayersFactory, size: int
    ) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        if config.core_size:
            self.core = nn.GRU(self.encoder.features, config.core_size, batch_first=True)
        self._layers = layers(config, layer_sizes(config, seen, self.encoder.features), size)
        for name, mlp in self._layers.mlps.items():
            normalizes = mlp.architecture == "batch_norm"
            self.add_module(name, EnsembleMlp(1, mlp) if normalizes else Mlp(mlp))
        for name, count in self._layers.vectors.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(count)))
        for name, constant in self._layers.constants(torch).items():
            self.register_buffer(name, constant, persistent=False)

    def output(self, x: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        """The output of the layers."""
        output: torch.Tensor = self._layers.forward(torch, self, x, *inputs)
        return output


class TorchNetwork(TorchParts):
    """A network without memory; see `TorchParts`."""

    def forward(self, obs: Obs, *inputs: torch.Tensor) -> torch.Tensor:
        """The output for columns ``obs...``."""
        return self.output(self.encoder(obs), *inputs)


class RecurrentParts(nn.Module):
    """The part of a network with a recurrent core that runs it over windows of B sequences.

    The core computes in float32 always: its errors would add up.

    Attributes:
        encoder: from columns to features.
        core: from features and a memory to the memory after them.
    """

    encoder: BuiltInEncoder | CustomEncoder
    core: nn.GRU

    def windows(
        self,
        obs: Obs,
        memory_BH: torch.Tensor,
        burned_B: torch.Tensor,
        burn_in: int,
        steps: int,
    ) -> torch.Tensor:
        """The memory ``(B, T + 1, H)`` after each window's positions ``burned .. burned + T``.

        The memory before the first of them is that of the window's first row, brought to the
        present weights by the rows in between, without a gradient (burn-in, Kapturowski et al.
        2019, section 3). What lies behind the window's last row is computed on padding.

        Args:
            obs: columns ``(B, L + 1, ...)``.
            memory_BH: before the observation at position 0.
            burned_B: rows of burn-in, int64, at most `burn_in`.
            burn_in: N.
            steps: T.
        """
        if burn_in:
            memory_BH = self._burn(obs, memory_BH, burned_B, burn_in)
        x_BSF = self._features(window_rows(obs, burned_B, steps + 1), len(memory_BH))
        return self._run(x_BSF, memory_BH)

    def run(self, obs: Obs, memory_BH: torch.Tensor, begins_BT: torch.Tensor) -> torch.Tensor:
        """The memory ``(B, T, H)`` after each row of runs, in which episodes may begin.

        Args:
            obs: columns ``(B T, ...)``, the rows of each run one behind the other.
            memory_BH: before the first row of each.
            begins_BT: bool; nothing is remembered before such a row.
        """
        x_BTF = self._features(obs, len(memory_BH))
        goes_on_BT1 = (~begins_BT).to(memory_BH.dtype).unsqueeze(2)
        weights = tuple(self.core.parameters())
        after = []
        for t in range(x_BTF.shape[1]):
            memory_BH = torch.gru_cell(x_BTF[:, t], memory_BH * goes_on_BT1[:, t], *weights)
            after.append(memory_BH)
        return torch.stack(after, dim=1)

    def remember(self, obs: Obs, memory_BH: torch.Tensor) -> torch.Tensor:
        """The memory ``(B, H)`` after single observations ``(B, ...)``."""
        return torch.gru_cell(self.encoder(obs), memory_BH, *self.core.parameters())

    @torch.no_grad()
    def _burn(
        self, obs: Obs, memory_BH: torch.Tensor, burned_B: torch.Tensor, burn_in: int
    ) -> torch.Tensor:
        rows = {name: column[:, :burn_in].flatten(0, 1) for name, column in obs.items()}
        y_BNH = self._run(self._features(rows, len(memory_BH)), memory_BH)
        last_B1H = (burned_B - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, y_BNH.shape[2])
        burned_BH = y_BNH.gather(1, last_B1H).squeeze(1)
        return torch.where(burned_B.unsqueeze(1) > 0, burned_BH, memory_BH)

    def _features(self, rows: Obs, sequences: int) -> torch.Tensor:
        """``(B, S, F)`` of columns ``(B S, ...)``."""
        x_RF: torch.Tensor = self.encoder(rows)
        return x_RF.view(sequences, -1, x_RF.shape[1])

    def _run(self, x_BSF: torch.Tensor, memory_BH: torch.Tensor) -> torch.Tensor:
        """The memory ``(B, S, H)`` after each position."""
        with torch.autocast(x_BSF.device.type, enabled=False):
            y_BSH: torch.Tensor
            y_BSH, _ = self.core(x_BSF.float(), memory_BH.unsqueeze(0).contiguous())
        return y_BSH


class RecurrentNetwork(TorchParts, RecurrentParts):
    """A network with a recurrent core; see `TorchParts` and `RecurrentParts`.

    Learning goes through `forward`, which may be compiled or compute in bfloat16, or through the
    parts that `forward_parts` names; acting through `remember` and `output`.
    """

    def forward(
        self,
        obs: Obs,
        memory_BH: torch.Tensor,
        burned_B: torch.Tensor,
        burn_in: int,
        steps: int,
        *inputs: torch.Tensor,
    ) -> torch.Tensor:
        """The output ``(B (T + 1), ...)`` at the positions of `windows`.

        Args:
            obs, memory_BH, burned_B, burn_in, steps: as `windows` has them.
            inputs: further inputs of the layers, of B (T + 1) rows.
        """
        y_BSH = self.windows(obs, memory_BH, burned_B, burn_in, steps)
        return self.output(y_BSH.flatten(0, 1), *inputs)


def forward_parts(networks: Sequence[nn.Module]) -> tuple[nn.Module, ...]:
    """The encoders and perceptrons of networks with a recurrent core.

    An agent that runs the core once for several outputs learns through these, and not through the
    networks' own `forward`. Encoders without weights are left out.
    """
    return tuple(
        part
        for network in networks
        for part in network.children()
        if not isinstance(part, nn.GRU) and any(True for _ in part.parameters())
    )


def window_rows(columns: Obs, first_B: torch.Tensor, count: int) -> dict[str, torch.Tensor]:
    """So many positions of columns ``(B, P, ...)``, from each sequence's first one on, without the
    axis of sequences: ``(B count, ...)``. The last position stands for those behind it."""
    rows: dict[str, torch.Tensor] = {}
    for name, column in columns.items():
        sequences, positions = column.shape[:2]
        each = torch.arange(count, device=column.device)
        at_BS = (first_B.unsqueeze(1) + each).clamp_(max=positions - 1)
        at_BS += torch.arange(sequences, device=column.device).unsqueeze(1) * positions
        rows[name] = column.flatten(0, 1).index_select(0, at_BS.flatten())
    return rows


def build_network(
    config: NetworkConfig, observation: gym.Space[Any], layers: LayersFactory, size: int
) -> nn.Module:
    """The network that a configuration asks for, from columns to the output of `layers`.

    Args:
        config: names a custom network, or sizes of the built-in one.
        observation: the space.
        layers: describes the layers behind the encoder.
        size: the size of an action.
    """
    seen = choose_input(config, observation)
    if isinstance(seen, CustomInput) and config.custom_network_is_whole:
        return CustomQNetwork(seen.name, seen.observation, size)
    kind = RecurrentNetwork if config.core_size else TorchNetwork
    return kind(config, seen, layers, size)


def compute_in_bfloat16(network: nn.Module) -> None:
    """Have a network compute in bfloat16 where autocast does, forwards and backwards; its weights,
    its output and all around it stay float32."""
    forward = network.forward

    def rounded(*inputs: Any) -> torch.Tensor:
        # A cache of rounded weights would outlive the weights in a captured step.
        device = next(network.parameters()).device.type
        with torch.autocast(device, torch.bfloat16, cache_enabled=False):
            output: torch.Tensor = forward(*inputs)
        return output.float()

    network.forward = rounded


def compile_networks(networks: Sequence[nn.Module], device: torch.device) -> str:
    """Compile networks (`torch.compile`) at their first use; returns the reason where that is not
    possible here, and leaves them as they are."""
    try:
        compiled = torch.compile(functional.softplus)
        compiled(torch.ones(64, device=device))
    except Exception as error:  # noqa: BLE001 - of many kinds: no compiler, no headers, no Triton
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0]}"
    torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
    for network in networks:
        network.compile()
    return ""


class ObsNormalizer:
    """Running mean and variance of the observation, of the batches that an agent learns from.

    Statistics of what is *drawn* are those of the networks' own input, priorities included, and the
    learner has them without reading the replay once more. Each batch counts as much as any other
    (Chan et al. 1979), so they move less and less and stand still in the end, as a target needs it.
    One broken number among them must not make all others alike: see `_OUTLIER` and
    `_OUTLIERS_MAX`.

    Args:
        columns: the columns of the observation; none switches it off.
        device: the device of the batches.

    Attributes:
        mean: of all columns, one after another.
        scale: 1 / deviation of them.
    """

    def __init__(self, columns: NormalizedColumns, device: str) -> None:
        self._columns = columns
        self._batches = torch.zeros((), device=device)
        self.mean, self._variance = torch.zeros(2, columns.size, device=device)
        self.scale = torch.ones(columns.size, device=device)
        self._outliers = torch.zeros(columns.size, device=device)
        """Shares of the numbers so far, in batches."""
        self._means = columns.split(self.mean)
        self._scales = columns.split(self.scale)

    @torch.no_grad()
    def update(self, obs: Obs, counted_B: torch.Tensor | None = None) -> None:
        """Count a batch.

        Args:
            counted_B: 1 where a row counts, and 0 for padding ``(B,)``; of one rank alone. None:
                all count.
        """
        names = list(self._means)
        if not names:
            return
        flat = [
            obs[name].flatten(1) if obs[name].dim() > 1 else obs[name][:, None] for name in names
        ]
        x_BF = flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)
        x_BF = x_BF.float()
        if counted_B is None:
            variance_F, mean_F = ranks.var_mean(self._within_bounds(x_BF, None))
        else:
            share_B1 = (counted_B / counted_B.sum())[:, None]
            x_BF = self._within_bounds(x_BF, share_B1)
            mean_F = (x_BF * share_B1).sum(dim=0)
            variance_F = ((x_BF - mean_F).square() * share_B1).sum(dim=0)
        self._batches += 1.0
        rate = self._batches.reciprocal()
        delta_F = mean_F - self.mean
        variance_F.addcmul_(delta_F.square(), 1.0 - rate)
        self._variance.lerp_(variance_F, rate)
        self.mean.addcmul_(delta_F, rate)
        torch.rsqrt(self._variance + _VARIANCE_EPS, out=self.scale)

    def _within_bounds(self, x_BF: torch.Tensor, share_B1: torch.Tensor | None) -> torch.Tensor:
        early = self._batches < _BEFORE_OUTLIERS
        bound_F = _OUTLIER / self.scale
        is_outside_BF = ((x_BF - self.mean).abs() > bound_F).float()
        if share_B1 is None:
            share_F = is_outside_BF.mean(dim=0)
            ranks.average(share_F)
        else:
            share_F = (is_outside_BF * share_B1).sum(dim=0)
        self._outliers += torch.where(early, 0.0, share_F)
        many_F = self._outliers > _OUTLIERS_MAX * (self._batches + _WITHOUT_OUTLIERS)
        bound_F = torch.where(early | many_F, _LARGEST, bound_F)
        return x_BF.clamp(self.mean - bound_F, self.mean + bound_F)

    def observations(self, batch: Mapping[str, torch.Tensor], part: str) -> Obs:
        """The columns of ``obs`` or ``next_obs``, renamed to ``obs...`` and normalised; those of
        ``obs`` are counted first."""
        obs = select_part(batch, part)
        if part == "obs":
            self.update(obs)
        return self.normalize(obs)

    def window_observations(self, batch: Mapping[str, torch.Tensor]) -> Obs:
        """The columns ``obs...`` of sequences ``(B, L + 1, ...)``, normalised. Counted is the first
        row of each that is learned from: as many rows a step as sequences, and no padding."""
        obs = select_part(batch, "obs")
        self.update(window_rows(obs, batch[BURNED], 1))
        return self.normalize(obs)

    def normalize(self, obs: Obs) -> Obs:
        """The same columns, normalised; sequences of them, too."""
        return normalize_columns(obs, self._means, self._scales) if self._means else obs

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The part of the model that acting needs. Copies."""
        return self.pending_arrays().value

    def pending_arrays(self) -> Pending[dict[str, NDArray[np.float32]]]:
        """`arrays`, of copies that are begun."""
        named = {MEAN: self.mean, SCALE: self.scale} if self._means else {}
        copies = {name: read_later(tensor) for name, tensor in named.items()}
        return Pending(lambda: {name: copy.array() for name, copy in copies.items()})

    def get_state(self) -> State:
        """The statistics; nothing where there are none. Copies on the CPU."""
        return self.pending_state().value

    def pending_state(self) -> Pending[State]:
        """`get_state`, of copies that are begun."""
        copies = {name: read_later(tensor) for name, tensor in self._state().items()}
        return Pending(
            lambda: {name: torch.from_numpy(copy.array()) for name, copy in copies.items()}
        )

    def set_state(self, state: State) -> None:
        """Continue from these statistics.

        Raises:
            ModelMismatchError: they are of other observations.
        """
        state = {"outliers": torch.zeros_like(self._outliers), **state}  # older states have none
        for name, tensor in self._state().items():
            if name not in state or state[name].shape != tensor.shape:
                stored = f"shape {tuple(state[name].shape)}" if name in state else "nothing"
                raise ModelMismatchError(
                    f"normalizer.{name}", f"shape {tuple(tensor.shape)}", stored
                )
            tensor.copy_(state[name])

    def _state(self) -> dict[str, torch.Tensor]:
        if not self._means:
            return {}
        return {
            "batches": self._batches,
            "mean": self.mean,
            "variance": self._variance,
            "scale": self.scale,
            "outliers": self._outliers,
        }


def split_statistics(
    arrays: Mapping[str, NDArray[Any]], batches: int
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """A model's arrays in two: its weights, and the state of an `ObsNormalizer` that counted so
    many batches."""
    weights = {name: array for name, array in arrays.items() if name not in (MEAN, SCALE)}
    if MEAN not in arrays:
        return weights, {}
    scale = arrays[SCALE]
    return weights, {
        "batches": np.array(batches, np.float32),
        "mean": arrays[MEAN],
        "variance": np.maximum(scale**-2 - np.float32(_VARIANCE_EPS), np.float32(0)),
        "scale": scale,
    }


class StatisticsModule(nn.Module):
    """A model's statistics of the observation, for graphs."""

    def __init__(self, columns: NormalizedColumns, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().__init__()
        self._columns = columns
        empty = np.zeros(0, np.float32)
        for name, key in (("mean", MEAN), ("scale", SCALE)):
            self.register_buffer(name, torch.from_numpy(arrays.get(key, empty).copy()))

    def forward(self, obs: Obs) -> dict[str, torch.Tensor]:
        """The columns ``obs...``, normalised."""
        mean, scale = (self._columns.split(self.get_buffer(name)) for name in ("mean", "scale"))
        return normalize_columns(obs, mean, scale)


class NormalizedModule(nn.Module):
    """A network behind a model's statistics, for graphs: `NormalizedNetwork` in torch."""

    def __init__(
        self, network: nn.Module, columns: NormalizedColumns, arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        super().__init__()
        self.network = network
        self._statistics = StatisticsModule(columns, arrays)

    def forward(self, obs: Obs, *inputs: torch.Tensor) -> torch.Tensor:
        """The output for columns ``obs...``."""
        output: torch.Tensor = self.network(self._statistics(obs), *inputs)
        return output


class NormalizedRecurrentModule(nn.Module):
    """A network with a recurrent core behind a model's statistics, for graphs; see
    `NormalizedModule`.

    Attributes:
        memory_size: H.
    """

    network: RecurrentNetwork

    def __init__(
        self,
        network: RecurrentNetwork,
        columns: NormalizedColumns,
        arrays: Mapping[str, NDArray[Any]],
    ) -> None:
        super().__init__()
        self.network = network
        self.memory_size = network.core.hidden_size
        self._statistics = StatisticsModule(columns, arrays)

    def remember(self, obs: Obs, memory_BH: torch.Tensor) -> torch.Tensor:
        """The memory after columns ``obs...``."""
        return self.network.remember(self._statistics(obs), memory_BH)

    def output(self, memory_BH: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        """The output for a memory."""
        return self.network.output(memory_BH, *inputs)


class _TorchActing:
    """A network on the CPU that only acts, on the arrays of the last model it was given.

    It is in evaluation mode, exploring or not: dropout helps learning, and a policy does without.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network.requires_grad_(False).eval()
        self._parameters = dict(network.named_parameters())
        self.shapes = {name: tuple(p.shape) for name, p in self._parameters.items()}
        self._synced = False

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights; see `vedette_rl.networks.acting_network.SyncedNetwork`."""
        check_arrays(self.shapes, model.arrays)
        for name, parameter in self._parameters.items():
            parameter.copy_(torch.tensor(model.arrays[name]))
        self._synced = True

    def _apply(
        self, function: Callable[..., torch.Tensor], *given: Columns | NDArray[Any]
    ) -> NDArray[np.float32]:
        """The array that a function of tensors gives for columns and arrays."""
        if not self._synced:
            check_arrays(self.shapes, {})  # raises: it has no model to act on
        with torch.inference_mode():
            array: NDArray[np.float32] = function(*map(_tensors, given)).numpy()
        return array


def _tensors(given: Columns | NDArray[Any]) -> Any:  # a tensor, or several by name
    if isinstance(given, Mapping):
        return {name: torch.as_tensor(column) for name, column in given.items()}
    return torch.as_tensor(given)


class TorchActingNetwork(_TorchActing):
    """An `ActingNetwork` in torch; see `_TorchActing`."""

    def __call__(self, obs: Columns, *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for columns ``obs...``."""
        return self._apply(self._network, obs, *inputs)


class RecurrentTorchActingNetwork(_TorchActing):
    """A `RecurrentActingNetwork` in torch; see `_TorchActing`."""

    def __init__(self, network: RecurrentNetwork) -> None:
        super().__init__(network)
        self._recurrent = network
        self.memory_size = network.core.hidden_size

    def remember(self, obs: Columns, memory: NDArray[np.float32]) -> NDArray[np.float32]:
        """The memory after these observations; see `RecurrentActingNetwork`."""
        return self._apply(self._recurrent.remember, obs, memory)

    def output(self, memory: NDArray[np.float32], *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for a memory; see `RecurrentActingNetwork`."""
        return self._apply(self._recurrent.output, memory, *inputs)
