"""The half of TD3 with memory that learns.

Shapes: B sequences, T rows of a window, S = T + 1 positions, R = B T rows, D action dimensions.
"""

from __future__ import annotations

import torch

from vedette_rl.agents.captured_step import Batch, Due, StepResult
from vedette_rl.agents.recurrent_actor_critic import Passes, RecurrentActorCritic, rows_of
from vedette_rl.agents.td3.agent import Td3Agent
from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.agents.windows import NStepTargets, Window, n_step_targets, row_weights
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.torch_network import RecurrentNetwork, forward_parts


class RecurrentTd3Agent(RecurrentActorCritic, Td3Agent):
    """An `Agent`: a step of algorithm 1 on the rows of windows, where a state is what was
    remembered."""

    _pi_target: RecurrentNetwork

    def __init__(self, config: Td3Config, spaces: Spaces, *, device: str, seed: int) -> None:
        super().__init__(config, spaces, device=device, seed=seed)
        self.networks = forward_parts(self.networks)

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`."""
        window, passes = self.passes(batch, policy_learns=due.policy)
        fit = self.fit_windows(window, passes, self._targets(window, passes), weights)
        if due.policy:
            a_RD = self.pi.output(rows_of(passes.policy))
            q_KRN = self.q.values(rows_of(passes.critics.detach()), a_RD)
            of_rows = row_weights(window.learned, None)
            self.descend_policy(-(of_rows * self.policy_value(q_KRN)).mean())
        if due.target:
            self.move_targets()
        return self.result(due, fit)

    @torch.no_grad()
    def _targets(self, window: Window, passes: Passes) -> NStepTargets:
        """The parts of the targets, whose values are Q'(s', mu'(s') + noise): ``(B, T, M)``."""
        # a shared core is in both targets alike: each moves towards the critics' at the same steps
        shares = bool(self.shared_parts)
        y_BSH = passes.target if shares else self._pi_target.windows(*passes.places)
        a_PD = self.smoothed(self._pi_target.output(y_BSH.flatten(0, 1)))
        q_BSM = self.window_values(passes, a_PD)
        return n_step_targets(window, q_BSM, self._config.n_step, self._config.discount)
