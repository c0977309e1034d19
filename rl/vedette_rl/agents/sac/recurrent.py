"""The half of SAC with memory that learns. Equations are those of arXiv:1812.05905.

Shapes: B sequences, T rows of a window, S = T + 1 positions, P = B S, R = B T rows, D action
dimensions, M values of a target.
"""

from __future__ import annotations

import torch

from vedette_rl.agents.captured_step import Batch, Due, StepResult
from vedette_rl.agents.recurrent_actor_critic import Passes, RecurrentActorCritic, rows_of
from vedette_rl.agents.sac.agent import SacAgent
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.sac.loss import policy_loss
from vedette_rl.agents.windows import NStepTargets, Window, n_step_targets, row_weights
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.torch_network import forward_parts


class RecurrentSacAgent(RecurrentActorCritic, SacAgent):
    """An `Agent`: a gradient step of algorithm 1 on the rows of windows, where a state is what was
    remembered."""

    def __init__(self, config: SacConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        super().__init__(config, spaces, device=device, seed=seed)
        self.networks = forward_parts(self.networks)

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`."""
        window, passes = self.passes(batch, policy_learns=due.policy)
        alpha = self._temperature()
        fit = self.fit_windows(window, passes, self._targets(window, passes, alpha), weights)
        scalars = {"alpha": alpha}
        if due.policy:
            scalars = {**self._improve(window, passes, alpha), **scalars}
        if due.target:
            self.move_targets()
        return self.result(due, fit, **scalars)

    @torch.no_grad()
    def _targets(self, window: Window, passes: Passes, alpha: torch.Tensor) -> NStepTargets:
        """The parts of the targets, whose values are Q'(s', a') - alpha log pi(a' | s') (equation
        3): ``(B, T, M)``."""
        a_PD, log_pi_P = self.sample(self.pi.output(passes.policy.flatten(0, 1)))
        q_BSM = self.window_values(passes, a_PD)
        soft_BSM = q_BSM - (alpha * log_pi_P).view(*q_BSM.shape[:2], 1)
        scaled = window._replace(reward=self._config.reward_scale * window.reward)
        return n_step_targets(scaled, soft_BSM, self._config.n_step, self._config.discount)

    def _improve(
        self, window: Window, passes: Passes, alpha: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """A step of the policy and of alpha; returns the policy's loss and entropy."""
        a_RD, log_pi_R = self.sample(self.pi.output(rows_of(passes.policy)))
        q_KRN = self.q.values(rows_of(passes.critics.detach()), a_RD)
        of_rows = row_weights(window.learned, None)
        loss = policy_loss(self.policy_value(q_KRN), log_pi_R, alpha, of_rows)
        return self.descend_losses(loss, log_pi_R, of_rows)
