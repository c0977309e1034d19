"""The half of DQN with memory that learns.

Shapes: B sequences, T rows of a window, S = T + 1 positions, R = B T rows, A values of actions.
"""

from __future__ import annotations

from typing import Any

import torch

from vedette_rl.agents.captured_step import Batch, Due, StepResult
from vedette_rl.agents.dqn.agent import DqnAgent
from vedette_rl.agents.losses import td_loss
from vedette_rl.agents.recurrent_policy import MEMORY
from vedette_rl.agents.windows import (
    Window,
    WindowLearner,
    n_step_targets,
    row_weights,
    sequence_errors,
)
from vedette_rl.core.columns import BURNED


class RecurrentDqnAgent(WindowLearner, DqnAgent):
    """An `Agent` that learns from sequences (Kapturowski et al. 2019, section 2.3; Hausknecht &
    Stone 2015, arXiv:1507.06527).

    Both networks begin with the memory that the actor had, and bring it to their own weights by the
    rows of burn-in. Each row is learned from by its return of `n_step` rows.
    """

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`."""
        burn_in, steps = self.spans(batch)
        window = Window.of(batch, steps)
        obs = self.window_observations(batch)
        of_windows = (obs, batch[MEMORY].float(), batch[BURNED], burn_in, steps)
        q_BSA = self._by_window(self.online(*of_windows), steps)
        target = self._targets(window, q_BSA.detach(), of_windows).flatten()
        q_tm1 = self._heads.of(q_BSA[:, :-1].flatten(0, 1), self._heads.columns(window.action))
        loss = td_loss(q_tm1, target, self._config.loss, row_weights(window.learned, weights))
        self.descend(loss, due)
        errors = (q_tm1.detach() - target).abs_().view(-1, steps)
        td_errors = sequence_errors(errors, window.learned)
        of_rows = row_weights(window.learned, None)  # means are of the rows that were learned from
        return self.result(due, td_errors, loss, of_rows * q_tm1, of_rows * target)

    @torch.no_grad()
    def _targets(
        self, window: Window, q_BSA: torch.Tensor, of_windows: tuple[Any, ...]
    ) -> torch.Tensor:
        """The targets ``(B, T)``; the actions are chosen by `q_BSA` with double Q-learning."""
        steps = window.reward.shape[1]
        q_t_BSA = self._by_window(self.target(*of_windows), steps)
        selector_BSA = q_BSA if self._config.double else q_t_BSA
        best = self._heads.best(selector_BSA.flatten(0, 1))
        v_BS = self._heads.of(q_t_BSA.flatten(0, 1), best).view(-1, steps + 1)
        returns = n_step_targets(window, v_BS, self._config.n_step, self._config.discount)
        return self.bootstrap(*returns)

    def _by_window(self, output: torch.Tensor, steps: int) -> torch.Tensor:
        return output.view(-1, steps + 1, output.shape[-1])
