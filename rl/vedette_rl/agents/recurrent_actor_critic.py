"""The part that agents with a policy, critics and memory share: their passes over windows.

Shapes: B sequences, T rows of a window, S = T + 1 positions, R = B T rows, H numbers of a memory, D
action dimensions, K critics, N numbers of each, M values of a target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from vedette_rl.agents.actor_critic import ActorCritic, CriticFit
from vedette_rl.agents.captured_step import Batch
from vedette_rl.agents.critics import RecurrentCritics
from vedette_rl.agents.recurrent_policy import MEMORY
from vedette_rl.agents.windows import (
    NStepTargets,
    Window,
    WindowLearner,
    row_weights,
    sequence_errors,
)
from vedette_rl.core.columns import BURNED
from vedette_rl.networks.torch_network import RecurrentNetwork


class Passes(NamedTuple):
    """The memories ``(B, S, H)`` after each position of the windows, by network.

    Args:
        critics: with a gradient into the critics.
        target: of the target critics.
        policy: with a gradient into the policy where it has a core of its own; else those of the
            critics, without one.
        places: the other arguments of `RecurrentParts.windows`, for further networks.
    """

    critics: torch.Tensor
    target: torch.Tensor
    policy: torch.Tensor
    places: tuple[Any, ...]


class RecurrentActorCritic(WindowLearner, ActorCritic):
    """An `ActorCritic` that learns from sequences, as `RecurrentDqnAgent` does.

    The policy has the critics' encoder and core, which the critics' loss alone trains: so the
    memory that an actor stored is theirs, too, and a step runs the core twice, of the critics and
    of their targets. With ``shared_encoder=False`` the policy learns its own, and stores its own
    memory; the critics then begin with an empty one, and know of what was before a sequence what
    the burn-in shows (Ni et al. 2022, arXiv:2110.05038, have cores apart).
    """

    pi: RecurrentNetwork
    q: RecurrentCritics
    _q_target: RecurrentCritics

    def passes(self, batch: Batch, *, policy_learns: bool) -> tuple[Window, Passes]:
        """The windows of a batch, and what each network remembers in them."""
        burn_in, steps = self.spans(batch)
        window = Window.of(batch, steps)
        obs = self._shift(self._normalizer.window_observations(batch))
        memory_BH = batch[MEMORY].float()
        stored = (obs, memory_BH, batch[BURNED], burn_in, steps)
        if self.shared_parts:
            critics_BSH = self.q.windows(*stored)
            with torch.no_grad():
                target_BSH = self._q_target.windows(*stored)
            return window, Passes(critics_BSH, target_BSH, critics_BSH.detach(), stored)
        empty = (obs, torch.zeros_like(memory_BH), *stored[2:])
        critics_BSH = self.q.windows(*empty)
        with torch.no_grad():
            target_BSH = self._q_target.windows(*empty)
        with torch.set_grad_enabled(policy_learns):
            policy_BSH = self.pi.windows(*stored)
        return window, Passes(critics_BSH, target_BSH, policy_BSH, stored)

    def fit_windows(
        self,
        window: Window,
        passes: Passes,
        targets: NStepTargets,
        weights: torch.Tensor | None,
    ) -> CriticFit:
        """Descend the loss of the critics on the rows that are learned from; means of the result
        are over these, and it has one TD error for each sequence."""
        steps = window.learned.shape[1]
        q_tm1_KRN = self.q.values(rows_of(passes.critics), self.to_unit(window.action))
        fit = self.descend_critics(q_tm1_KRN, targets.sums(), row_weights(window.learned, weights))
        of_rows = row_weights(window.learned, None)
        return CriticFit(
            fit.loss,
            of_rows * fit.values,
            of_rows * fit.targets,
            sequence_errors(fit.td_errors.view(-1, steps), window.learned),
        )

    def window_values(self, passes: Passes, action_PD: torch.Tensor) -> torch.Tensor:
        """The targets' values ``(B, S, M)`` of actions at all positions, P = B S."""
        q_KPN = self._q_target.values(passes.target.flatten(0, 1), action_PD)
        q_PM = self.target_values(q_KPN)
        return q_PM.view(*passes.target.shape[:2], -1)


def rows_of(y_BSH: torch.Tensor) -> torch.Tensor:
    """The memories ``(R, H)`` of the positions that have rows: all but each window's last."""
    return y_BSH[:, :-1].flatten(0, 1)
