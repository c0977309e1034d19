"""The half of TD3 that learns. Shapes: B samples, D action dimensions, M target values."""

from __future__ import annotations

import torch

from vedette_rl.agents.actor_critic import ActorCritic, Successors
from vedette_rl.agents.captured_step import Batch, Due, StepResult
from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.agents.td3.network import DeterministicLayers
from vedette_rl.core.learning import State
from vedette_rl.device.ranks import draw_rows
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.parameter_vector import ParameterVector
from vedette_rl.networks.seeding import build_seeded


def smoothed_action(
    a_t_BD: torch.Tensor, noise_BD: torch.Tensor, std: float, bound: float
) -> torch.Tensor:
    """The target's action with clipped noise, in [-1, 1]. (section 5.3, equation 14)"""
    return (a_t_BD + (std * noise_BD).clamp_(-bound, bound)).clamp_(-1.0, 1.0)


class Td3Agent(ActorCritic):
    """An `Agent`: one optimization step is one of algorithm 1 on one batch."""

    def __init__(self, config: Td3Config, spaces: Spaces, *, device: str, seed: int) -> None:
        super().__init__(config, spaces, DeterministicLayers, device=device, seed=seed)
        self._config: Td3Config = config
        self._pi_target = build_seeded(self.build_policy, seed, device).eval()
        self.networks += (self._pi_target,)
        self._target_policy = ParameterVector(self._pi_target, learns=False)
        self._target_policy.soft_update(self.policy, 1.0)  # the critics' encoder, where it has that

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`."""
        obs = self.observations(batch, "obs")
        fit = self.fit_critics(obs, batch, self._successors(batch), weights)
        if due.policy:
            self.descend_policy(-self.policy_value(self.q(obs, self.pi(obs))).mean())
        if due.target:
            self.move_targets()
        return self.result(due, fit)

    def policy_value(self, q_KBN: torch.Tensor) -> torch.Tensor:
        """The value ``(B,)`` that the policy is to increase: the first critic's (equation 15); the
        mean of all where a subset of them counts (REDQ) or they have quantiles (TQC)."""
        if self._config.critics_in_target or q_KBN.shape[2] > 1:
            return super().policy_value(q_KBN)
        return q_KBN[0].squeeze(1)

    def move_targets(self) -> None:
        """Move the target critics, and the target policy."""
        super().move_targets()
        self._target_policy.soft_update(self.policy, self._config.tau)

    @torch.no_grad()
    def _successors(self, batch: Batch) -> Successors:
        """Return the successors for targets r + discount Q'(s', mu'(s') + noise)."""
        next_obs = self.observations(batch, "next_obs")
        discount_t = self.discounts(batch["n_steps"], batch["terminated"]).unsqueeze(1)
        r_t = batch["reward"].unsqueeze(1)
        return Successors(
            next_obs,
            self.smoothed(self._pi_target(next_obs)),
            lambda q_t_BM: torch.addcmul(r_t, discount_t, q_t_BM),
        )

    def smoothed(self, a_t_BD: torch.Tensor) -> torch.Tensor:
        """The target policy's actions ``(B, D)`` with noise that is drawn now."""
        noise_BD = draw_rows(torch.randn, a_t_BD.shape, self.noise)
        config = self._config
        return smoothed_action(a_t_BD, noise_BD, config.target_noise, config.target_noise_clip)

    def pending_state(self) -> State:
        """All that resume needs; see `ActorCritic.pending_state`."""
        target = self._target_policy
        return {**super().pending_state(), "target_policy": target.pending(target.data)}

    def set_state(self, state: State) -> None:
        """Continue from `state`; see `ActorCritic.set_state`."""
        super().set_state(state)
        self._target_policy.set(self._target_policy.data, state["target_policy"])
