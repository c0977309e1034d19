"""Credit: the limit of batches and bytes that each manager may have sent and not yet settled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Credit(NamedTuple):
    """The most that one manager may have outstanding, and the reason if that is nothing."""

    batches: int
    bytes: int
    reason: str = ""


def share_credit(
    budget_batches: int, budget_bytes: int, managers: Iterable[str], paused: str = ""
) -> dict[str, Credit]:
    """Split the learner's budget into equal parts, one for each manager.

    Each manager gets at least one batch and one byte, so that it makes progress. With more managers
    than `budget_batches`, or batches larger than a part, the budget is exceeded by at most one
    batch per manager.

    Args:
        budget_batches, budget_bytes: the most that all may have outstanding together; at least 1.
        managers: ids of the managers that are alive.
        paused: the reason why nobody may send now; "" when they may.
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
