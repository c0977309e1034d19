"""The part that agents with a policy and critics share.

Shapes: B samples, D action dimensions, K critics, N numbers of each (its value, or quantiles of
it), M values of a target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from vedette_rl.agents.actions import BoxActions
from vedette_rl.agents.captured_step import LEFT_OUT, Due, SteppedAgent, StepResult
from vedette_rl.agents.config import ActorCriticConfig
from vedette_rl.agents.critics import Critics, RecurrentCritics
from vedette_rl.agents.discounts import Discounts
from vedette_rl.agents.losses import quantile_huber_loss, td_loss
from vedette_rl.core.learning import ModelInfo, State
from vedette_rl.device import ranks
from vedette_rl.device.host_copy import PendingArrays, settled
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.adam import VectorAdam
from vedette_rl.networks.encoder import Obs, RandomShift
from vedette_rl.networks.initial_values import build_lecun_normal
from vedette_rl.networks.layers import LayersFactory, normalized_columns
from vedette_rl.networks.observation import NetworkInput, choose_input, images_of
from vedette_rl.networks.parameter_vector import ParameterVector
from vedette_rl.networks.seeding import build_seeded, restore_generator
from vedette_rl.networks.torch_network import ObsNormalizer, build_network


class CriticFit(NamedTuple):
    """The result of a step of the critics.

    Args:
        loss: the mean over samples, the sum over critics.
        values: the critics' values ``(K, B)``, the means of quantiles.
        targets: the targets of the values ``(B,)``.
        td_errors: the mean over critics of the absolute differences ``(B,)``.
    """

    loss: torch.Tensor
    values: torch.Tensor
    targets: torch.Tensor
    td_errors: torch.Tensor


class Successors(NamedTuple):
    """The successors of a batch, from which its targets are computed.

    Args:
        obs: the successors' observations, as the networks take them.
        actions: the actions there ``(B, D)``, in [-1, 1].
        target: computes the targets ``(B, M)`` from their values ``(B, M)``.
    """

    obs: Obs
    actions: torch.Tensor
    target: Callable[[torch.Tensor], torch.Tensor]


def shared_parts(config: ActorCriticConfig, seen: NetworkInput) -> tuple[str, ...]:
    """The parts of the critics that the policy has a copy of: the encoder of images, and with a
    recurrent core that, and every encoder."""
    if not config.shared_encoder:
        return ()
    if config.core_size:
        return ("encoder", "core")
    return ("encoder",) if images_of(seen) else ()


class ActorCritic(SteppedAgent):
    """An `Agent` without its step: a policy, critics, and target critics, equal to them at first.

    Critics with batch normalization have no targets (CrossQ, Bhatt et al. 2024, arXiv:1902.05605):
    they see a batch and its successors as one batch, normalised by the statistics of both.

    ::

        class MyAgent(ActorCritic):
            def step(self, batch, weights, due):
                obs = self.observations(batch, "obs")
                fit = self.fit_critics(obs, batch, Successors(next_obs, action, target), weights)
                if due.policy:
                    self.descend_policy(loss)   # of self.q(obs, self.pi(obs))
                if due.target:
                    self.move_targets()
                return self.result(due, fit)

    Args:
        config: the agent's configuration.
        spaces: the environment's spaces; actions are a Box.
        layers: describes the policy.
        device: torch's name of the device.
        seed: the seed of weights and noise.

    Attributes:
        pi, q: the networks.
        policy: the parameters of `pi`.
        size: D.
        noise: all random numbers of learning.
        shared_parts: the parts of `q` that `pi` has a copy of.
    """

    def __init__(
        self,
        config: ActorCriticConfig,
        spaces: Spaces,
        layers: LayersFactory,
        *,
        device: str,
        seed: int,
    ) -> None:
        self._config = config
        actions = BoxActions.from_space(config.name, spaces.action)
        seen = choose_input(config, spaces.observation)
        self.size = size = actions.size
        self._center = torch.from_numpy(actions.center).to(device)
        self._half_width = torch.from_numpy(actions.half_width).to(device)

        self.build_policy: Callable[[], nn.Module] = partial(
            build_network, config, spaces.observation, layers, size
        )
        build_critics: Callable[[], Critics] = partial(
            RecurrentCritics if config.core_size else Critics, config, seen, size
        )
        if config.weight_init == "lecun_normal":
            self.build_policy = partial(build_lecun_normal, self.build_policy)
            build_critics = partial(build_lecun_normal, build_critics)
        self.pi = build_seeded(self.build_policy, seed, device)
        self.q = build_seeded(build_critics, seed + 1, device)
        self.shared_parts = shared_parts(config, seen)
        for part in self.shared_parts:
            self.pi.get_submodule(part).requires_grad_(False)
        self.policy = ParameterVector(self.pi, learns=True)
        self._critics = ParameterVector(self.q, learns=True)
        self._policy_adam = self.adam(self.policy, config.learning_rate, config.policy_delay)
        self._critics_adam = self.adam(self._critics, config.learning_rate)
        self._normalizer = ObsNormalizer(normalized_columns(config, spaces.observation), device)
        self._shift = RandomShift(seen, config.random_shift, device=device, seed=seed)
        self.discounts = Discounts(config.discount, device)
        self.noise = torch.Generator(device).manual_seed(seed)
        n = config.n_quantiles
        midpoints_N = (torch.arange(n, device=device) + 0.5) / n
        self._taus_1N = midpoints_N.repeat(1, config.n_critics)  # of all critics
        self.generators = (self.noise, *self._shift.generators)
        self.networks: tuple[nn.Module, ...] = (self.pi, self.q)
        self._target: ParameterVector | None = None
        self._statistics: list[torch.Tensor] = []  # of batch normalization, running
        if config.has_targets:
            # without the noise of a custom encoder's dropout, as `ValueAgent` has it
            self._q_target = build_seeded(build_critics, seed + 1, device).eval()
            self._target = ParameterVector(self._q_target, learns=False)
            self.networks += (self._q_target,)
        else:
            self._statistics = self._critics.frozen_views(self._critics.data)
        self._follow_encoder()

    def adam(
        self,
        vector: ParameterVector,
        learning_rate: float,
        interval: int = 1,
        *,
        of_weights: bool = True,
    ) -> VectorAdam:
        """The optimizer of a vector, which takes a step in every `interval` optimization steps;
        `of_weights`: with the weights' decay and the configured first decay."""
        return VectorAdam(
            vector,
            learning_rate=learning_rate,
            beta1=self._config.adam_beta1 if of_weights else 0.9,
            eps=self._config.adam_eps,
            max_grad_norm=self._config.max_grad_norm,
            weight_decay=self._config.weight_decay if of_weights else 0.0,
            schedule=self._config.schedule,
            interval=interval,
        )

    def due(self, *, record: bool) -> Due:
        """Return the parts that are due in the next step; see `SteppedAgent`."""
        step = self.opt_steps + 1
        config = self._config
        return Due(
            policy=step % config.policy_delay == 0,
            target=step % config.target_update_interval == 0,
            record=record,
        )

    def optimizers(self, due: Due) -> tuple[VectorAdam, ...]:
        """The critics', and where it is due the policy's; see `SteppedAgent`."""
        return (self._critics_adam, self._policy_adam) if due.policy else (self._critics_adam,)

    def observations(self, batch: Mapping[str, torch.Tensor], part: str) -> Obs:
        """The columns of ``obs`` or ``next_obs``, renamed to ``obs...``, as the networks take them:
        images shifted, numbers normalised; the running statistics count those of ``obs``."""
        return self._shift(self._normalizer.observations(batch, part))

    def target_values(self, q_t_KBN: torch.Tensor) -> torch.Tensor:
        """The values ``(B, M)`` of the successors, without what is likely to be too high.

        The smallest of the critics, or of a random subset of them (REDQ, Chen et al. 2021,
        algorithm 1). Of quantiles, all but the largest (TQC, Kuznetsov et al. 2020, equation 9).
        """
        if self._config.critics_in_target:
            q_t_KBN = q_t_KBN.index_select(0, self._draw_critics())
        n = q_t_KBN.shape[2]
        if n == 1:
            return q_t_KBN.amin(dim=0)
        q_t_BM = q_t_KBN.transpose(0, 1).flatten(1).sort(dim=1).values
        return q_t_BM[:, : len(q_t_KBN) * (n - self._config.dropped_quantiles)]

    def _draw_critics(self) -> torch.Tensor:
        """A random subset, without a sync: the order of random numbers is a permutation."""
        places = torch.rand(self._config.n_critics, generator=self.noise, device=self.noise.device)
        return places.argsort()[: self._config.critics_in_target]

    def policy_value(self, q_KBN: torch.Tensor) -> torch.Tensor:
        """The value ``(B,)`` that the policy is to increase: the smallest of the critics; the mean
        where a subset of them counts (REDQ) or they have quantiles (TQC)."""
        if self._config.critics_in_target or q_KBN.shape[2] > 1:
            return q_KBN.mean(dim=(0, 2))
        return q_KBN.amin(dim=0).squeeze(1)

    def fit_critics(
        self,
        obs: Obs,
        batch: Mapping[str, torch.Tensor],
        successors: Successors,
        weights: torch.Tensor | None,
    ) -> CriticFit:
        """Descend the loss of the critics."""
        q_tm1_KBN, q_t_KBN = self._critic_values(obs, self.actions_of(batch), successors)
        with torch.no_grad():
            target_BM = successors.target(self.target_values(q_t_KBN))
        return self.descend_critics(q_tm1_KBN, target_BM, weights)

    def descend_critics(
        self, q_tm1_KBN: torch.Tensor, target_BM: torch.Tensor, weights: torch.Tensor | None
    ) -> CriticFit:
        """Descend the loss of these values of the critics."""
        loss = self._critic_loss(q_tm1_KBN, target_BM, weights)
        self._critics_adam.zero_grad()
        torch.autograd.backward(loss)
        self._critics_adam.move()
        for statistics in self._statistics:  # each rank has counted its part of the batch
            ranks.average(statistics)
        self._follow_encoder()
        q_KB = q_tm1_KBN.detach().mean(dim=2)
        target_B = target_BM.mean(dim=1)
        return CriticFit(loss, q_KB, target_B, (q_KB - target_B).abs_().mean(dim=0))

    def _critic_values(
        self, obs: Obs, action_BD: torch.Tensor, successors: Successors
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Values ``(K, B, N)`` of a batch, and of its successors without a gradient."""
        next_obs, next_action_BD, _ = successors
        if self._target is None:
            both = {name: torch.cat([obs[name], next_obs[name]]) for name in obs}
            q_KBN = self.q(both, torch.cat([action_BD, next_action_BD]), True)
            q_tm1_KBN, q_t_KBN = q_KBN.chunk(2, dim=1)
            return q_tm1_KBN, q_t_KBN.detach()
        with torch.no_grad():
            q_t_KBN = self._q_target(next_obs, next_action_BD)
        return self.q(obs, action_BD), q_t_KBN

    def actions_of(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The actions ``(B, D)`` of a batch in [-1, 1]."""
        return self.to_unit(batch["action"])

    def to_unit(self, action: torch.Tensor) -> torch.Tensor:
        """Actions ``(B, *shape)`` within their bounds as ``(B, D)`` in [-1, 1]."""
        return (action.reshape(len(action), -1) - self._center) / self._half_width

    def _follow_encoder(self) -> None:
        """Give the policy the critics' encoder and core, where it has none of its own."""
        if self.shared_parts:
            prefixes = tuple(f"{part}." for part in self.shared_parts)
            self.policy.copy_parts(self._critics, prefixes)

    def _critic_loss(
        self, q_tm1_KBN: torch.Tensor, target_BM: torch.Tensor, weights: torch.Tensor | None
    ) -> torch.Tensor:
        """The mean over samples, the sum over critics."""
        critics, _, n = q_tm1_KBN.shape
        if n == 1:
            q_tm1_KB = q_tm1_KBN.squeeze(2)
            target_KB = target_BM.squeeze(1).expand_as(q_tm1_KB)
            return critics * td_loss(q_tm1_KB, target_KB, self._config.loss, weights)
        z_tm1_BN = q_tm1_KBN.transpose(0, 1).flatten(1)  # of all critics
        loss_B = quantile_huber_loss(z_tm1_BN, self._taus_1N, target_BM, 1.0) / n
        return (loss_B if weights is None else weights * loss_B).mean()

    def descend_policy(self, loss: torch.Tensor) -> None:
        """One step of Adam down this loss, through the critics, but not into them."""
        self._policy_adam.zero_grad()
        torch.autograd.backward(loss, inputs=self.policy.parameters)
        self._policy_adam.move()

    def move_targets(self) -> None:
        """Move the target critics, where there are some, towards the critics."""
        if self._target is not None:
            self._target.soft_update(self._critics, self._config.tau)

    def result(self, due: Due, fit: CriticFit, **scalars: torch.Tensor) -> StepResult:
        """The result of a step, with these scalars and those of all agents if they are recorded."""
        if not due.record:
            return StepResult(fit.td_errors, {})
        return StepResult(
            fit.td_errors,
            {
                "loss": fit.loss,
                **scalars,
                "q_mean": fit.values.mean(),
                "target_mean": fit.targets.mean(),
                "td_error_mean": fit.td_errors.mean(),
                "grad_norm": self._critics_adam.grad_norm(),
                "policy_grad_norm": self._policy_adam.grad_norm(),
                # of the policy, which learns less often, each stands for those between
                LEFT_OUT: self._critics_adam.left_out
                + self._config.policy_delay * self._policy_adam.left_out,
            },
        )

    def model_info(self) -> ModelInfo:
        """The policy and the observation's statistics: all that acting needs."""
        policy, statistics = self.policy.pending_arrays(), self._normalizer.pending_arrays()
        return ModelInfo(
            self.opt_steps, PendingArrays(lambda: {**policy.value, **statistics.value})
        )

    def get_state(self) -> State:
        """All that resume needs. Copies."""
        return settled(self.pending_state())

    def pending_state(self) -> State:
        """`get_state`, of copies that are begun."""
        target = self._target
        return {
            "opt_steps": self.opt_steps,
            "policy": self.policy.pending(self.policy.data),
            "critics": self._critics.pending(self._critics.data),
            **({"target": target.pending(target.data)} if target is not None else {}),
            "normalizer": self._normalizer.pending_state(),
            "policy_adam": self._policy_adam.pending_state(),
            "critics_adam": self._critics_adam.pending_state(),
            "noise": self.noise.get_state(),
            "shift": self._shift.generator.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ModelMismatchError: it is the state of another network.
        """
        self.policy.set(self.policy.data, state["policy"])
        self._critics.set(self._critics.data, state["critics"])
        if self._target is not None:
            self._target.set(self._target.data, state["target"])
        self._normalizer.set_state(state["normalizer"])
        # `policy_delay` may have changed since
        self._policy_adam.set_state(state["policy_adam"], state["opt_steps"])
        self._critics_adam.set_state(state["critics_adam"], state["opt_steps"])
        restore_generator(self.noise, state["noise"])
        restore_generator(self._shift.generator, state["shift"])
        self.opt_steps = state["opt_steps"]
