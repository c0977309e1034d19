"""TD errors as actors tell them: one network bootstraps itself, as it acts. No torch.

Shapes: B transitions, A actions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns, part


def greedy_td_errors(
    q: Callable[[Columns], NDArray[np.float32]],
    transitions: Columns,
    *,
    discount: float,
    first_action: int,
) -> NDArray[np.float32]:
    """``|r + discount**n max_a Q(s', a) - Q(s, a)|``: ``(B,)``.

    Args:
        q: action values ``(B, A)`` of columns ``obs...``.
        transitions: whole ones.
        discount: gamma, of a step.
        first_action: what the first action is called.
    """
    a_tm1 = transitions["action"] - first_action
    q_tm1 = np.take_along_axis(q(part(transitions, "obs")), a_tm1[:, np.newaxis], 1)[:, 0]
    q_t = q(part(transitions, "next_obs")).max(axis=1)
    discount_t = discount ** transitions["n_steps"].astype(np.float32)
    discount_t[transitions["terminated"]] = 0.0
    errors: NDArray[np.float32] = np.abs(transitions["reward"] + discount_t * q_t - q_tm1)
    return errors.astype(np.float32, copy=False)
