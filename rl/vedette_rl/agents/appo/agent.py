"""The half of APPO that learns.

Shapes: K runs of a block, T steps of a run, R = K T rows, B rows of a minibatch. "mu" is the policy
that acted, "beta" the learner's when the block was taken, "pi" the one that learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import nn

from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.appo.distributions import distribution_of
from vedette_rl.agents.appo.loss import clipped_loss, masked_mean, normalized, ratio, vtrace
from vedette_rl.agents.appo.network import VALUE, initialize, value_layer, with_value
from vedette_rl.agents.appo.policy import POLICY_ACTION, head_of
from vedette_rl.agents.appo.steady_normalizer import SteadyNormalizer
from vedette_rl.agents.captured_step import LEFT_OUT, Batch, Due, SteppedAgent, StepResult
from vedette_rl.core.columns import BEGINS, LEARNED, LOG_PROB, select_part
from vedette_rl.core.learning import BlockBatch, MinibatchPlace, ModelInfo, OptResult, State
from vedette_rl.device.host_copy import Pending, PendingArrays, read_later, settled
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.adam import VectorAdam
from vedette_rl.networks.encoder import Obs
from vedette_rl.networks.layers import normalized_columns
from vedette_rl.networks.parameter_vector import ParameterVector
from vedette_rl.networks.seeding import build_seeded
from vedette_rl.networks.torch_network import build_network

_CHOSEN = "chosen"


_STRETCH_MAX = 1.2
"""The factor by which the scale of values may move in a block without the layer that follows."""


class ValueScale:
    """The running mean and deviation of the values' targets, in which values are learned.

    Each block counts as much as any other (Chan et al. 1979), so they move less and less. Values
    move with them, as returns do that grow. But behind a jump, as where rewards begin late, they
    would be many times too large, and so would the next targets. So where the deviation moves by
    more than `_STRETCH_MAX` in a block, the layer of the values follows, and no value's distance to
    the mean before is stretched by more (PopArt, van Hasselt et al. 2016, arXiv:1602.07714,
    equations 4 to 6, would not stretch it at all). Not for the first block, before which the values
    are nothing learned.

    Args:
        values: the layer whose output is a value in this scale.
        wanted: False leaves the scale as it is.
    """

    def __init__(self, device: str, values: nn.Linear, *, wanted: bool) -> None:
        self._values = values
        self._wanted = wanted
        self._blocks = torch.zeros((), device=device)
        self._variance = torch.ones((), device=device)
        self.mean = torch.zeros((), device=device)
        self.deviation = torch.ones((), device=device)

    def update(self, target_R: torch.Tensor, mask_R: torch.Tensor) -> None:
        """Count the targets of a block, which are in the unit of rewards."""
        if not self._wanted:
            self._blocks.clamp_(min=1.0)  # from now on values are learned ones
            return
        mean = masked_mean(target_R, mask_R)
        variance = masked_mean((target_R - mean).square(), mask_R)
        usable = mean.isfinite() & variance.isfinite()  # else this block has no scale
        mean = torch.where(usable, mean, self.mean)
        variance = torch.where(usable, variance, self._variance)
        learned = self._blocks > 0.0
        mean_before, deviation_before = self.mean.clone(), self.deviation.clone()
        self._blocks += 1.0
        rate = self._blocks.reciprocal()
        delta = mean - self.mean
        self._variance.lerp_(variance + delta.square() * (1.0 - rate), rate)
        self.mean.addcmul_(delta, rate)
        self.deviation.copy_((self._variance + _VARIANCE_EPS).sqrt())
        growth = self.deviation / deviation_before
        stretch = growth.clamp(1.0 / _STRETCH_MAX, _STRETCH_MAX)
        follows = learned & (stretch != growth)
        factor = torch.where(follows, stretch / growth, 1.0)
        offset = torch.where(follows, (mean_before - self.mean) / self.deviation, 0.0)
        self._values.weight.mul_(factor)
        self._values.bias.mul_(factor).add_(offset)

    def follow_learned(self, opt_steps: int) -> None:
        """Take the values for learned ones, where they are after so many optimization steps:
        versions before 0.4 did not count the blocks where no scale was wanted."""
        if opt_steps:
            self._blocks.clamp_(min=1.0)

    def tensors(self) -> dict[str, torch.Tensor]:
        """All that resume needs, in place."""
        return {
            "blocks": self._blocks,
            "variance": self._variance,
            "mean": self.mean,
            "deviation": self.deviation,
        }


_VARIANCE_EPS = 1e-8


class Evaluation(NamedTuple):
    """What the network says of observations.

    Args:
        policy: its output ``(B, ...)``, which a `Distribution` reads.
        values: ``(B,)``, in the network's own scale.
        memory: what is remembered after each of them ``(B, H)``; None without memory.
    """

    policy: torch.Tensor
    values: torch.Tensor
    memory: torch.Tensor | None


class AppoAgent(SteppedAgent):
    """An `Agent` of blocks of runs (`BlockBatch`): one optimization step learns from a minibatch.

    A batch that is no `BlockBatch` is a block of its own, with a single minibatch.
    """

    def __init__(self, config: AppoConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        self._config = config
        head = head_of(spaces.action)
        actions = head.actions.from_space(config.name, spaces.action)
        self._distribution = distribution_of(actions, config, device)

        def build() -> nn.Module:
            layers = with_value(head.layers)
            network = build_network(config, spaces.observation, layers, actions.size)
            initialize(network, config.initial_log_std)
            return network

        self.network = build_seeded(build, seed, device)
        self.networks = (self.network,)
        self._vector = ParameterVector(self.network, learns=True)
        self._adam = VectorAdam(
            self._vector,
            learning_rate=config.learning_rate,
            eps=config.adam_eps,
            max_grad_norm=config.max_grad_norm,
            schedule=config.schedule,
        )
        self._normalizer = SteadyNormalizer(
            normalized_columns(config, spaces.observation), device, config.normalizer_kl
        )
        self._scale = ValueScale(device, value_layer(self.network), wanted=config.normalize_values)
        self._clip = torch.full((), config.clip, device=device)
        self._place = MinibatchPlace()
        # Of the block in progress, made by its first minibatch.
        self._log_beta = self._advantages = self._targets = torch.zeros(0, device=device)

    def opt(
        self, batch: Batch, weights: torch.Tensor | None = None, *, record: bool = False
    ) -> OptResult:
        """One optimization step. See `vedette_rl.core.learning.Agent.opt`."""
        self._place = batch.place if isinstance(batch, BlockBatch) else MinibatchPlace()
        rows = batch["reward"].numel()
        if self._place.begins_block and len(self._log_beta) != rows:
            empty = torch.zeros(3, rows, device=self._clip.device)
            self._log_beta, self._advantages, self._targets = empty.unbind()
        schedule = self._config.clip_schedule
        if schedule.changes:  # here: a replayed graph reads the number that is there
            self._clip.fill_(self._config.clip * schedule.factor(self.opt_steps + 1))
        return super().opt(batch, weights, record=record)

    def due(self, *, record: bool) -> Due:
        """Return the parts that are due in the next step; see `SteppedAgent`."""
        place = self._place
        once = self._config.advantages == "block"
        return Due(
            record=record,
            begins=place.begins_block,
            values=place.begins_block if once else place.begins_pass,
            ends=place.ends_block,
        )

    def optimizers(self, due: Due) -> tuple[VectorAdam, ...]:
        """The one; see `SteppedAgent`."""
        return (self._adam,)

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`.

        Args:
            weights: of the minibatch's rows ``(B,)``; a queue has none.
        """
        config = self._config
        if due.values or due.begins:
            self._learn_block(batch, due)
        rows, chosen_B = _choose(batch, batch.get(_CHOSEN))
        mask_B = rows[LEARNED].float()
        if weights is not None:
            mask_B = mask_B * weights
        output, v_B, _ = self.evaluate(batch, rows, chosen_B)
        log_pi_B = self._distribution.log_prob(output, rows)
        log_beta_B = self._log_beta.index_select(0, chosen_B)
        advantage_B = self._advantages.index_select(0, chosen_B)
        target_B = self._targets.index_select(0, chosen_B)
        if config.normalize_advantages:
            advantage_B = normalized(advantage_B, mask_B)
        r_B = ratio(log_pi_B, log_beta_B)
        w_B = self._cut(log_beta_B, rows[LOG_PROB], config.rho_max)
        policy_loss = masked_mean(clipped_loss(r_B, advantage_B, self._clip, w_B), mask_B)
        scaled_B = (target_B - self._scale.mean) / self._scale.deviation
        value_loss = masked_mean((v_B - scaled_B).square(), mask_B)
        entropy = masked_mean(self._distribution.entropy(output), mask_B)
        loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
        self._adam.zero_grad()
        torch.autograd.backward(loss)
        self._adam.move()
        if due.ends:  # and not before: pi sees what beta saw
            self._move_statistics(batch)
        if not due.record:
            return StepResult(None, {})
        r_B = r_B.detach()
        error_B = scaled_B - v_B.detach()
        spread = _variance(scaled_B, mask_B).clamp(min=_VARIANCE_EPS)
        return StepResult(
            None,
            {
                "loss": loss,
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy,
                "kl": masked_mean(r_B - 1.0 - r_B.log(), mask_B),
                "clipped": masked_mean(((r_B - 1.0).abs() > self._clip).float(), mask_B),
                "weight_mean": masked_mean(w_B, mask_B),
                "explained_variance": 1.0 - _variance(error_B, mask_B) / spread,
                "value_scale": self._scale.deviation.clone(),
                "grad_norm": self._adam.grad_norm(),
                LEFT_OUT: self._adam.left_out.clone(),
            },
        )

    @torch.no_grad()
    def _learn_block(self, batch: Batch, due: Due) -> None:
        """Note beta of a block, and compute its advantages and targets."""
        config = self._config
        rows = _flat(batch)
        runs = batch["reward"].shape
        output, v_R, memory_RH = self.evaluate(batch, rows, _all_places(batch))
        log_pi_R = self._distribution.log_prob(output, rows)
        if due.begins:
            self._log_beta.copy_(log_pi_R)
        if not due.values:
            return
        v_next_R = self.successor_values(rows, memory_RH)
        over = batch["terminated"] | batch["truncated"]
        returns = vtrace(
            batch["reward"],
            config.discount * (~batch["terminated"]).float(),
            self._value(v_R).view(runs),
            self._value(v_next_R).view(runs),
            _joined(over, batch),
            self._cut(log_pi_R, rows[LOG_PROB], config.rho_max).view(runs),
            self._cut(log_pi_R, rows[LOG_PROB], config.c_max).view(runs),
            config.lambda_,
        )
        self._targets.copy_(returns.targets.flatten())
        self._advantages.copy_(returns.advantages.flatten())
        if due.begins:
            self._scale.update(self._targets, _learned(batch).flatten().float())

    def _move_statistics(self, batch: Batch) -> None:
        """Count a block's observations, and normalise by what follows as far as the policy allows,
        which some of its runs measure."""
        rows, chosen_B = _choose(batch, _some_places(batch))
        mask_B = rows[LEARNED].float()
        with torch.no_grad():
            before = self.evaluate(batch, rows, chosen_B).policy

            def divergence() -> torch.Tensor:
                after = self.evaluate(batch, rows, chosen_B).policy
                return masked_mean(self._distribution.divergence(before, after), mask_B)

            learned_R = _learned(batch).flatten().float()
            self._normalizer.update(_flat(select_part(batch, "obs")), divergence, learned_R)

    def _cut(self, log_pi_R: torch.Tensor, log_mu_R: torch.Tensor, most: float) -> torch.Tensor:
        """pi / mu, cut off; 1 where nothing is corrected."""
        if self._config.correction == "none":
            return torch.ones_like(log_pi_R)
        return ratio(log_pi_R, log_mu_R).clamp(max=most)

    def _value(self, v_R: torch.Tensor) -> torch.Tensor:
        """Values in the unit of rewards, of the network's."""
        return self._scale.deviation * v_R + self._scale.mean

    def evaluate(self, batch: Batch, rows: Batch, chosen_B: torch.Tensor) -> Evaluation:
        """The network's output for the observations of rows.

        Args:
            batch: the block.
            rows: its rows ``(B, ...)``.
            chosen_B: their places in the block.
        """
        output = self.network(self.observations(rows, "obs")).float()
        return Evaluation(output[:, :-1], output[:, -1], None)

    def successor_values(self, rows: Batch, memory_RH: torch.Tensor | None) -> torch.Tensor:
        """The values ``(R,)`` of what all rows of a block came to, in the network's scale.

        Args:
            memory_RH: as `evaluate` has it.
        """
        output: torch.Tensor = self.network(self.observations(rows, "next_obs")).float()
        return output[:, -1]

    def observations(self, rows: Batch, part: str) -> Obs:
        """The columns of ``obs`` or ``next_obs``, renamed to ``obs...``, as the network takes them:
        normalised by statistics of earlier blocks."""
        return self._normalizer.normalize(select_part(rows, part))

    def model_info(self) -> ModelInfo:
        """The policy and the observation's statistics: all that acting needs."""
        learned, statistics = self._vector.pending_arrays(), self._normalizer.pending_arrays()

        def arrays() -> dict[str, NDArray[Any]]:
            acting = {n: a for n, a in learned.value.items() if not n.startswith(f"{VALUE}.")}
            return {**acting, **statistics.value}

        return ModelInfo(self.opt_steps, PendingArrays(arrays))

    def get_state(self) -> State:
        """All that resume needs. Copies."""
        return settled(self.pending_state())

    def pending_state(self) -> State:
        """`get_state`, of copies that are begun."""
        used, seen = self._normalizer.pending_state()
        return {
            "opt_steps": self.opt_steps,
            "network": self._vector.pending(self._vector.data),
            "adam": self._adam.pending_state(),
            "normalizer": used,
            "observed": seen,
            "value_scale": _pending(self._scale.tensors()),
            "block": _pending(self._block()),
        }

    def set_state(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ModelMismatchError: it is the state of another network.
        """
        self._vector.set(self._vector.data, state["network"])
        self._adam.set_state(state["adam"])
        self._normalizer.set_state(state["normalizer"], state["observed"])
        for name, tensor in self._scale.tensors().items():
            tensor.copy_(state["value_scale"][name])
        self._scale.follow_learned(state["opt_steps"])
        block = state["block"]
        empty = torch.zeros(3, len(block["log_beta"]), device=self._clip.device)
        self._log_beta, self._advantages, self._targets = empty.unbind()
        for name, tensor in self._block().items():
            tensor.copy_(block[name])
        self.opt_steps = state["opt_steps"]

    def _block(self) -> dict[str, torch.Tensor]:
        """What the minibatches of the block in progress share."""
        return {
            "log_beta": self._log_beta,
            "advantages": self._advantages,
            "targets": self._targets,
        }


def _pending(tensors: Mapping[str, torch.Tensor]) -> Pending[State]:
    copies = {name: read_later(tensor) for name, tensor in tensors.items()}
    return Pending(lambda: {n: torch.from_numpy(copy.array()) for n, copy in copies.items()})


def _flat(columns: Batch) -> dict[str, torch.Tensor]:
    """Columns ``(K T, ...)`` of those ``(K, T, ...)``."""
    return {n: column.flatten(0, 1) for n, column in columns.items() if column.dim() > 1}


def _choose(
    batch: Batch, chosen_B: torch.Tensor | None
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The rows ``(B, ...)`` at places of a block, and these places; None: all of them."""
    used = {n: column for n, column in batch.items() if _is_used(n)}
    rows = {**_flat(used), LEARNED: _learned(batch).flatten()}
    if chosen_B is None:
        return rows, _all_places(batch)
    return {n: column.index_select(0, chosen_B) for n, column in rows.items()}, chosen_B


def _all_places(batch: Batch) -> torch.Tensor:
    return torch.arange(batch["reward"].numel(), device=batch["reward"].device)


def _some_places(batch: Batch) -> torch.Tensor:
    """The places of evenly spaced runs: about `_MEASURED` rows, and one whole run at least."""
    runs, steps = batch["reward"].shape
    every = max(1, runs * steps // _MEASURED)
    run_C = torch.arange(0, runs, every, device=batch["reward"].device)
    step_T = torch.arange(steps, device=batch["reward"].device)
    return (run_C[:, None] * steps + step_T).flatten()


_MEASURED = 1024
"""Rows that say how far a policy has moved."""


def _is_used(name: str) -> bool:
    """True for the columns that a minibatch is computed from."""
    return name in ("action", LOG_PROB, POLICY_ACTION, "obs") or name.startswith("obs/")


def _learned(batch: Batch) -> torch.Tensor:
    """``(K, T)``, False behind the end of a shorter run."""
    learned = batch.get(LEARNED)
    return torch.ones_like(batch["terminated"]) if learned is None else learned


def _joined(over: torch.Tensor, batch: Batch) -> torch.Tensor:
    """1 where the next row of a run goes on with the same episode."""
    follows = _learned(batch)[:, 1:]
    if BEGINS in batch:  # a program's own loop may leave an episode in the middle
        follows = follows & ~batch[BEGINS][:, 1:]
    joined = torch.zeros_like(batch["reward"])
    joined[:, :-1] = (follows & ~over[:, :-1]).float()
    return joined


def _variance(x_B: torch.Tensor, mask_B: torch.Tensor) -> torch.Tensor:
    return masked_mean((x_B - masked_mean(x_B, mask_B)).square(), mask_B)
