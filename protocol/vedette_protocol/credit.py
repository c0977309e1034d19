"""Credit: how much each manager may have sent and not yet settled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Credit(NamedTuple):
    """What one manager may have outstanding, and why it may not if that is nothing."""

    batches: int
    bytes: int
    reason: str = ""


def share_credit(
    budget_batches: int, budget_bytes: int, managers: Iterable[str], paused: str = ""
) -> dict[str, Credit]:
    """Split what the learner can hold into equal parts, one for each manager.

    Everybody gets at least one batch and one byte, so that everybody makes progress: with more
    managers than `budget_batches`, or batches larger than a part, the budget is exceeded by at
    most one batch a manager.

    Args:
        budget_batches, budget_bytes: what all may have outstanding together, at least 1 each.
        managers: the ids of those that live.
        paused: why nobody may send now; "" when they may.
    """
    if budget_batches < 1 or budget_bytes < 1:
        raise ValueError(f"a budget of {budget_batches} batches, {budget_bytes} bytes stops all")
    ids = sorted(set(managers))
    if paused:
        return dict.fromkeys(ids, Credit(0, 0, paused))
    if not ids:
        return {}
    batches, left = divmod(budget_batches, len(ids))
    payload_bytes = max(1, budget_bytes // len(ids))
    more, less = (Credit(max(1, n), payload_bytes) for n in (batches + 1, batches))
    return dict.fromkeys(ids[:left], more) | dict.fromkeys(ids[left:], less)
