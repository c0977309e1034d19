"""The target of Munchausen DQN and IQN.

Shapes: B samples, M samples of a return, A values of actions of all heads, D heads, C actions of
the largest.
"""

from __future__ import annotations

import torch

from vedette_rl.agents.action_heads import ActionHeads
from vedette_rl.agents.captured_step import Batch
from vedette_rl.agents.config import MunchausenConfig


class Munchausen:
    """The target of Munchausen DQN and IQN (Vieillard et al. 2020, arXiv:2007.14430, section 3).

    pi is softmax(q / tau), q the target network's. Each of several heads has its own pi, and a
    sample has the mean over its heads. In a transition of several steps only the first action adds
    its log-probability.

    Attributes:
        wanted: the target is this one.
    """

    def __init__(self, config: MunchausenConfig, heads: ActionHeads) -> None:
        self._config = config
        self._heads = heads
        self.wanted = config.alpha > 0

    def reward(self, batch: Batch, q_tm1_BA: torch.Tensor) -> torch.Tensor:
        """r + alpha [tau log pi(a | s)], the bracket between `lowest` and 0: ``(B,)``."""
        log_pi_BDC = (self._heads.by_head(q_tm1_BA) / self._config.temperature).log_softmax(-1)
        choice_BD = self._heads.choices(batch["action"])
        log_pi_BD = log_pi_BDC.gather(-1, choice_BD.unsqueeze(-1)).squeeze(-1)
        scaled_BD = (self._config.temperature * log_pi_BD).clamp(self._config.lowest, 0.0)
        return torch.add(batch["reward"], scaled_BD.mean(-1), alpha=self._config.alpha)

    def value(self, q_t_BA: torch.Tensor, z_t_BMA: torch.Tensor) -> torch.Tensor:
        """sum_a pi(a | s') [z(s', a) - tau log pi(a | s')] of each of M samples: ``(B, M)``."""
        pi_BDC = (self._heads.by_head(q_t_BA) / self._config.temperature).softmax(-1)
        entropy_BD: torch.Tensor = torch.special.entr(pi_BDC).sum(-1)
        z_t_BMDC = self._heads.by_head(z_t_BMA, beyond=0.0)
        z_t_BMD = (pi_BDC.unsqueeze(1) * z_t_BMDC).sum(-1)
        return (z_t_BMD + self._config.temperature * entropy_BD.unsqueeze(1)).mean(-1)
