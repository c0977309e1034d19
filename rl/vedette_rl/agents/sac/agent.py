"""The half of SAC that learns. Equations are those of arXiv:1812.05905.

Shapes: B samples, D action dimensions, M values of a target.
"""

from __future__ import annotations

import torch
from torch import nn

from vedette_rl.agents.actor_critic import ActorCritic, Successors
from vedette_rl.agents.captured_step import Batch, Due, StepResult
from vedette_rl.agents.imitation import Imitation
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.sac.loss import policy_loss, soft_target, temperature_loss
from vedette_rl.agents.sac.network import GaussianLayers, NormalizedGaussianLayers
from vedette_rl.agents.sac.squashed_gaussian import log_pi_of, squashed_sample
from vedette_rl.core.learning import ModelInfo, State
from vedette_rl.device import ranks
from vedette_rl.device.host_copy import PendingArrays
from vedette_rl.device.ranks import draw_rows
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.adam import VectorAdam
from vedette_rl.networks.batch_norm_folding import fold_batch_norm
from vedette_rl.networks.encoder import Obs
from vedette_rl.networks.parameter_vector import ParameterVector


class Temperature(nn.Module):
    """alpha, which weighs entropy against return."""

    def __init__(self, initial_alpha: float) -> None:
        super().__init__()
        alpha = max(initial_alpha, torch.finfo(torch.float32).tiny)  # 0 has no logarithm
        self.log_alpha = nn.Parameter(torch.tensor(alpha).log())

    def forward(self) -> torch.Tensor:
        """alpha, without a gradient: neither the critics nor the policy tune it."""
        return self.log_alpha.detach().exp()


class SacAgent(ActorCritic):
    """An `Agent`: one optimization step is a gradient step of algorithm 1 on one batch."""

    def __init__(self, config: SacConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        layers = NormalizedGaussianLayers if config.policy_batch_norm else GaussianLayers
        super().__init__(config, spaces, layers, device=device, seed=seed)
        self._config: SacConfig = config
        self._policy_counts = (True,) if config.policy_batch_norm else ()  # a batch it learns from
        self._policy_statistics: list[torch.Tensor] = []
        if config.policy_batch_norm:
            self._policy_statistics = self.policy.frozen_views(self.policy.data)
        self._target_entropy = (
            -float(self.size) if config.target_entropy == "auto" else config.target_entropy
        )
        self._tuned = config.alpha == "auto"
        self._imitation = Imitation(config.imitation, device, config.policy_delay)
        alpha = config.initial_alpha if config.alpha == "auto" else config.alpha
        self._temperature = Temperature(alpha).to(device)
        self._log_alpha = ParameterVector(self._temperature, learns=self._tuned)
        self._alpha_adam = self.adam(
            self._log_alpha, config.alpha_learning_rate, config.policy_delay, of_weights=False
        )

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`."""
        obs = self.observations(batch, "obs")
        alpha = self._temperature()
        fit = self.fit_critics(obs, batch, self._successors(batch, alpha), weights)
        scalars = {"alpha": alpha}
        if due.policy:
            scalars = {**self._improve_policy(obs, alpha, batch), **scalars}
        if due.target:
            self.move_targets()
        return self.result(due, fit, **scalars)

    def optimizers(self, due: Due) -> tuple[VectorAdam, ...]:
        """Return the optimizers, with alpha's if it is tuned; see `SteppedAgent`."""
        alpha = (self._alpha_adam,) if due.policy and self._tuned else ()
        return (*super().optimizers(due), *alpha)

    @torch.no_grad()
    def _successors(self, batch: Batch, alpha: torch.Tensor) -> Successors:
        next_obs = self.observations(batch, "next_obs")
        a_t_BD, log_pi_t = self.sample(self.pi(next_obs))
        discount_t = self.discounts(batch["n_steps"], batch["terminated"])
        r_t = self._config.reward_scale * batch["reward"]
        return Successors(
            next_obs, a_t_BD, lambda q_t_BM: soft_target(r_t, discount_t, q_t_BM, log_pi_t, alpha)
        )

    def sample(self, output_BE: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``(B, D)`` drawn from the policy, by the output ``(B, 2 D)`` of its network, and
        their log densities ``(B,)``."""
        mean_BD, log_std_BD = self._gaussian(output_BE)
        noise_BD = draw_rows(torch.randn, mean_BD.shape, self.noise)
        return squashed_sample(mean_BD, log_std_BD, noise_BD)

    def _gaussian(self, output_BE: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean_BD, log_std_BD = output_BE.chunk(2, dim=1)
        return mean_BD, log_std_BD.clamp(self._config.log_std_min, self._config.log_std_max)

    def _improve_policy(
        self, obs: Obs, alpha: torch.Tensor, batch: Batch
    ) -> dict[str, torch.Tensor]:
        """A step of the policy and of alpha; returns the policy's loss and entropy."""
        a_tm1_BD, log_pi_tm1 = self.sample(self.pi(obs, *self._policy_counts))
        loss = policy_loss(self.policy_value(self.q(obs, a_tm1_BD)), log_pi_tm1, alpha)
        if self._imitation.wanted(batch):
            unlike_B = -log_pi_of(self.actions_of(batch), *self._gaussian(self.pi(obs)))
            loss = loss + self._imitation.weigh(unlike_B, batch)
        return self.descend_losses(loss, log_pi_tm1)

    def descend_losses(
        self, loss: torch.Tensor, log_pi_tm1: torch.Tensor, weights: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """Descend the policy's loss, and alpha's by these log densities of samples, each times its
        weight; returns the policy's loss and entropy."""
        self.descend_policy(loss)
        for statistics in self._policy_statistics:  # each rank has counted its part of the batch
            ranks.average(statistics)
        log_pi_tm1 = log_pi_tm1.detach()
        if self._tuned:
            self._alpha_adam.zero_grad()
            torch.autograd.backward(
                temperature_loss(
                    self._temperature.log_alpha, log_pi_tm1, self._target_entropy, weights
                )
            )
            self._alpha_adam.move()
        counted = log_pi_tm1 if weights is None else weights * log_pi_tm1
        return {"policy_loss": loss.detach(), "entropy": -counted.mean()}

    def model_info(self) -> ModelInfo:
        """All that acting needs; see `ActorCritic.model_info`. Batch normalization of the policy is
        folded into its linear layers, so that what acts is a plain network."""
        model = super().model_info()
        if not self._config.policy_batch_norm:
            return model
        folded = PendingArrays(lambda: fold_batch_norm(model.arrays, "policy"))
        return ModelInfo(model.version, folded)

    def pending_state(self) -> State:
        """All that resume needs; see `ActorCritic.pending_state`."""
        state = {**super().pending_state(), "alpha_adam": self._alpha_adam.pending_state()}
        if self._tuned:
            state["temperature"] = self._log_alpha.pending(self._log_alpha.data)
        return state

    def set_state(self, state: State) -> None:
        """Continue from `state`; see `ActorCritic.set_state`."""
        super().set_state(state)
        self._imitation.set_step(self.opt_steps)
        if self._tuned and "temperature" in state:  # a fixed one is as configured, now
            self._log_alpha.set(self._log_alpha.data, state["temperature"])
        self._alpha_adam.set_state(state["alpha_adam"], state["opt_steps"])
