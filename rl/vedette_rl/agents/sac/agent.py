"""The half of SAC that learns."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from vedette_rl.agents.actions import BoxActions
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.sac.loss import (
    policy_loss,
    soft_target,
    squashed_sample,
    temperature_loss,
)
from vedette_rl.agents.sac.network import GaussianLayers
from vedette_rl.agents.temporal_difference import Discounts, td_loss
from vedette_rl.core.columns import select_part
from vedette_rl.core.learning import ModelInfo, OptResult, State
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.adam import VectorAdam
from vedette_rl.networks.encoder import Obs, RandomShift
from vedette_rl.networks.observation import choose_input, images_of
from vedette_rl.networks.parameter_vector import ParameterVector, build_seeded
from vedette_rl.networks.torch_network import Critics, build_network


class Temperature(nn.Module):
    """alpha, which weighs entropy against return."""

    def __init__(self, initial_alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(initial_alpha).log())

    def forward(self) -> torch.Tensor:
        """alpha, without a gradient: neither the critics nor the policy tune it."""
        return self.log_alpha.detach().exp()


class SacAgent:
    """An `Agent`: one optimization step is a gradient step of algorithm 1 on one batch."""

    def __init__(self, config: SacConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        self._config = config
        actions = BoxActions.from_space(config.name, spaces.action)
        seen = choose_input(config, spaces.observation)
        size = actions.size
        self._center = torch.from_numpy(actions.center).to(device)
        self._half_width = torch.from_numpy(actions.half_width).to(device)
        self._target_entropy = (
            -float(size) if config.target_entropy == "auto" else config.target_entropy
        )

        def build_policy() -> nn.Module:
            return build_network(config, spaces.observation, GaussianLayers, size)

        def build_critics() -> Critics:
            return Critics(config, seen, size, config.n_critics)

        self._pi = build_seeded(build_policy, seed, device)
        self._q = build_seeded(build_critics, seed + 1, device)
        # without the noise of a custom encoder's dropout, as `ValueAgent` has it
        self._q_target = build_seeded(build_critics, seed + 1, device).eval()
        tuned = config.alpha == "auto"
        alpha = config.initial_alpha if config.alpha == "auto" else config.alpha
        self._temperature = Temperature(alpha).to(device)
        self._shares_encoder = config.shared_encoder and bool(images_of(seen))
        if self._shares_encoder:
            self._pi.encoder.requires_grad_(False)
        self._policy = ParameterVector(self._pi, learns=True)
        self._critics = ParameterVector(self._q, learns=True)
        self._target = ParameterVector(self._q_target, learns=False)
        self._log_alpha = ParameterVector(self._temperature, learns=tuned)
        self._tuned = tuned
        self._policy_adam = self._adam(self._policy, config.learning_rate)
        self._critics_adam = self._adam(self._critics, config.learning_rate)
        self._alpha_adam = self._adam(self._log_alpha, config.alpha_learning_rate)
        self._discounts = Discounts(config.discount, device)
        self._noise = torch.Generator(device).manual_seed(seed)
        self._shift = RandomShift(seen, config.random_shift, device=device, seed=seed)
        self._opt_steps = 0
        self._follow_encoder()

    def _adam(self, vector: ParameterVector, learning_rate: float) -> VectorAdam:
        return VectorAdam(
            vector,
            learning_rate=learning_rate,
            eps=self._config.adam_eps,
            max_grad_norm=self._config.max_grad_norm,
        )

    @property
    def opt_steps(self) -> int:
        """Optimization steps done, over all epochs of the run."""
        return self._opt_steps

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        """One optimization step. See `vedette_rl.core.learning.Agent.opt`."""
        obs = self._shift(select_part(batch, "obs"))
        alpha = self._temperature()
        target = self._soft_target(batch, alpha)
        a_tm1_BD = (batch["action"].reshape(len(target), -1) - self._center) / self._half_width
        q_tm1_KB = self._q(obs, a_tm1_BD)
        # the mean over samples, the sum over critics
        loss = self._config.n_critics * td_loss(
            q_tm1_KB, target.expand_as(q_tm1_KB), self._config.loss, weights
        )
        self._critics_adam.zero_grad()
        torch.autograd.backward(loss)
        self._critics_adam.step()
        self._follow_encoder()
        pi_loss, log_pi_tm1 = self._improve_policy(obs, alpha)
        if self._tuned:
            self._tune_temperature(log_pi_tm1)
        self._opt_steps += 1
        if self._opt_steps % self._config.target_update_interval == 0:
            self._target.soft_update(self._critics, self._config.tau)
        td_errors = (q_tm1_KB.detach() - target).abs_().mean(dim=0)
        if not record:
            return OptResult(td_errors)
        return OptResult(
            td_errors,
            {
                "loss": loss.item(),
                "policy_loss": pi_loss.item(),
                "alpha": alpha.item(),
                "entropy": -log_pi_tm1.mean().item(),
                "q_mean": q_tm1_KB.mean().item(),
                "target_mean": target.mean().item(),
                "td_error_mean": td_errors.mean().item(),
                "grad_norm": self._critics_adam.grad_norm(),
                "policy_grad_norm": self._policy_adam.grad_norm(),
            },
        )

    @torch.no_grad()
    def _soft_target(self, batch: Mapping[str, torch.Tensor], alpha: torch.Tensor) -> torch.Tensor:
        next_obs = self._shift(select_part(batch, "next_obs"))
        a_t_BD, log_pi_t = self._act(next_obs)
        q_t_KB = self._q_target(next_obs, a_t_BD)
        discount_t = self._discounts(batch["n_steps"], batch["terminated"])
        r_t = self._config.reward_scale * batch["reward"]
        return soft_target(r_t, discount_t, q_t_KB, log_pi_t, alpha)

    def _act(self, obs: Obs) -> tuple[torch.Tensor, torch.Tensor]:
        mean_BD, log_std_BD = self._pi(obs).chunk(2, dim=1)
        log_std_BD = log_std_BD.clamp(self._config.log_std_min, self._config.log_std_max)
        noise_BD = torch.randn(mean_BD.shape, generator=self._noise, device=mean_BD.device)
        return squashed_sample(mean_BD, log_std_BD, noise_BD)

    def _follow_encoder(self) -> None:
        """Give the policy the critics' encoder, where it has none of its own."""
        if self._shares_encoder:
            self._policy.copy_parts(self._critics, "encoder.")

    def _improve_policy(self, obs: Obs, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a_tm1_BD, log_pi_tm1 = self._act(obs)
        loss = policy_loss(self._q(obs, a_tm1_BD), log_pi_tm1, alpha)
        self._policy_adam.zero_grad()
        # through the critics, but not into them
        torch.autograd.backward(loss, inputs=self._policy.parameters)
        self._policy_adam.step()
        return loss, log_pi_tm1.detach()

    def _tune_temperature(self, log_pi_tm1: torch.Tensor) -> None:
        self._alpha_adam.zero_grad()
        log_alpha = self._temperature.log_alpha
        torch.autograd.backward(temperature_loss(log_alpha, log_pi_tm1, self._target_entropy))
        self._alpha_adam.step()

    def model_info(self) -> ModelInfo:
        """The policy network: all that acting needs."""
        return ModelInfo(self._opt_steps, self._policy.arrays())

    def get_state(self) -> State:
        """All that resume needs."""
        return {
            "opt_steps": self._opt_steps,
            "policy": self._policy.get(self._policy.data),
            "critics": self._critics.get(self._critics.data),
            "target": self._target.get(self._target.data),
            "temperature": self._log_alpha.get(self._log_alpha.data),
            "policy_adam": self._policy_adam.get_state(),
            "critics_adam": self._critics_adam.get_state(),
            "alpha_adam": self._alpha_adam.get_state(),
            "noise": self._noise.get_state(),
            "shift": self._shift.generator.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ModelMismatchError: it is the state of another network.
        """
        self._policy.set(self._policy.data, state["policy"])
        self._critics.set(self._critics.data, state["critics"])
        self._target.set(self._target.data, state["target"])
        self._log_alpha.set(self._log_alpha.data, state["temperature"])
        self._policy_adam.set_state(state["policy_adam"])
        self._critics_adam.set_state(state["critics_adam"])
        self._alpha_adam.set_state(state["alpha_adam"])
        self._noise.set_state(state["noise"])
        if "shift" in state:  # version 0.2.0 did not shift
            self._shift.generator.set_state(state["shift"])
        self._opt_steps = state["opt_steps"]
