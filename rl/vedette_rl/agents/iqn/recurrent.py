"""The half of IQN with memory that learns.

Shapes: B sequences, T rows of a window, S = T + 1 positions, P = B S, R = B T rows, H numbers of a
memory, N, M (the paper's N') and K quantile fractions, A values of actions.
"""

from __future__ import annotations

from typing import Any

import torch

from vedette_rl.agents.captured_step import Batch, Due, StepResult
from vedette_rl.agents.iqn.agent import IqnAgent
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.losses import quantile_huber_loss
from vedette_rl.agents.recurrent_policy import MEMORY
from vedette_rl.agents.windows import (
    Window,
    WindowLearner,
    n_step_targets,
    row_weights,
    sequence_errors,
)
from vedette_rl.core.columns import BURNED
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.torch_network import RecurrentNetwork, forward_parts


class RecurrentIqnAgent(WindowLearner, IqnAgent):
    """An `Agent` that descends equation 3 on the rows of windows, as `RecurrentDqnAgent` does.

    The core runs once for all quantile fractions of a network: they meet what was remembered.
    """

    online: RecurrentNetwork
    target: RecurrentNetwork

    def __init__(self, config: IqnConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        super().__init__(config, spaces, device=device, seed=seed)
        self.networks = forward_parts(self.networks)

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`."""
        burn_in, steps = self.spans(batch)
        window = Window.of(batch, steps)
        obs = self.window_observations(batch)
        of_windows = (obs, batch[MEMORY].float(), batch[BURNED], burn_in, steps)
        y_BSH = self.online.windows(*of_windows)
        target_RM = self._target_rows(window, y_BSH.detach().flatten(0, 1), of_windows)
        y_RH = y_BSH[:, :-1].flatten(0, 1)
        taus_RN = self._draw_taus(y_RH, self._config.n_quantiles)
        z_RNA = self.online.output(y_RH, taus_RN)
        z_RN = self._heads.of(z_RNA, self._heads.columns(window.action))
        loss_R = quantile_huber_loss(z_RN, taus_RN, target_RM, self._config.kappa)
        loss = (row_weights(window.learned, weights) * loss_R).mean()
        self.descend(loss, due)
        q_R, target_R = z_RN.detach().mean(dim=1), target_RM.mean(dim=1)
        errors = (target_R - q_R).abs_().view(-1, steps)
        td_errors = sequence_errors(errors, window.learned)
        of_rows = row_weights(window.learned, None)  # means are of the rows that were learned from
        return self.result(due, td_errors, loss, of_rows * q_R, of_rows * target_R)

    @torch.no_grad()
    def _target_rows(
        self, window: Window, y_PH: torch.Tensor, of_windows: tuple[Any, ...]
    ) -> torch.Tensor:
        """G + discount^m Z'_tau'(s', argmax_a mean_K Z(s', a)): ``(R, M)``. Z of the best action is
        the online network's, of these memories, with double Q-learning; else the target's."""
        config = self._config
        y_t_PH = self.target.windows(*of_windows).flatten(0, 1)
        taus_PK = self._draw_taus(y_PH, config.n_action_quantiles)
        taus_PM = self._draw_taus(y_PH, config.n_target_quantiles)
        if config.double:
            q_PA = self.means(self.online.output(y_PH, taus_PK))
        else:
            q_PA = self.means(self.target.output(y_t_PH, taus_PK))
        z_PM = self._heads.of(self.target.output(y_t_PH, taus_PM), self._heads.best(q_PA))
        z_BSM = z_PM.view(len(window.lengths), -1, config.n_target_quantiles)
        targets = n_step_targets(window, z_BSM, config.n_step, config.discount)
        returns_R, discounts_R, z_RM = (part.flatten(0, 1) for part in targets)
        return self.bootstrap(returns_R.unsqueeze(1), discounts_R.unsqueeze(1), z_RM)
