"""Episodes out of a replay: which rows follow one another.

A replay holds the transitions of many environments in the order in which they came. Two rows follow
one another where one actor made both and the first one's successor is what the second one saw.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vedette_rl.replay.export import LiveRows

_Key = tuple[int, int, bytes]  # manager, actor, what was seen


@dataclass(frozen=True, slots=True)
class Episode:
    """Rows that follow one another, by their places among the live rows.

    Args:
        rows: ``(T,)``, in order.
        is_whole: the last one ended the episode; else what came after is not in the replay.
    """

    rows: NDArray[np.int64]
    is_whole: bool


def episodes(live: LiveRows) -> list[Episode]:
    """The episodes of a replay of one-step transitions, in the order of their first rows.

    The replay's oldest rows may begin, and its newest end, in the midst of one.
    """
    follows = np.full(len(live), -1, np.int64)
    is_first = np.ones(len(live), np.bool_)
    open_ends: dict[_Key, deque[int]] = defaultdict(deque)
    over = live.column("terminated") | live.column("truncated")
    makers = zip(live.column("manager").tolist(), live.column("actor").tolist(), strict=True)
    seen = zip(makers, _digests(live, "obs"), _digests(live, "next_obs"), strict=True)
    for row, ((manager, actor), obs, next_obs) in enumerate(seen):
        waiting = open_ends.get((manager, actor, obs))
        if waiting:
            follows[waiting.popleft()] = row
            is_first[row] = False
        if not over[row]:
            open_ends[manager, actor, next_obs].append(row)
    return [_episode(int(first), follows, over) for first in np.flatnonzero(is_first)]


def _episode(first: int, follows: NDArray[np.int64], over: NDArray[np.bool_]) -> Episode:
    rows, row = [first], int(follows[first])
    while row >= 0:
        rows.append(row)
        row = int(follows[row])
    return Episode(np.array(rows), bool(over[rows[-1]]))


def _digests(live: LiveRows, part: str) -> Iterator[bytes]:
    """What stands for each row's observation: of all its columns."""
    names = [name for name in live.names if name == part or name.startswith(f"{part}/")]
    for pieces in zip(*(_values(live, name) for name in names), strict=True):
        yield hashlib.blake2b(b"".join(pieces), digest_size=16).digest()


def _values(live: LiveRows, name: str) -> Iterator[bytes]:
    for piece in live.pieces(name):
        for value in piece:
            yield value.tobytes()
