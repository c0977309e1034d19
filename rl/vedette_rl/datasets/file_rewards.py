"""The rewards of a file of columns: the environment's own, or scaled and clipped as in transitions,
which its columns `REWARD_SCALE` and `REWARD_CLIP` say.

::

    columns, are_own = own_rewards("demos.npz", columns, scale=0.05, clip=0.0)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns
from vedette_rl.core.columns import REWARD_CLIP, REWARD_SCALE, VERSION
from vedette_rl.errors import DataSetError


def own_rewards(name: str, columns: Columns, *, scale: float, clip: float) -> tuple[Columns, bool]:
    """Return the columns with the environment's own rewards and True, or as they are and False.

    They stay as they are where the file says that they are already what a run makes of rewards, or
    where it is one of an earlier release's exports, which did not say it.

    Args:
        name: the data set's name, as the user gave it.
        columns: of one file, by our names.
        scale, clip: of the run: `env.reward_scale` and `env.reward_clip`.

    Raises:
        DataSetError: they were clipped, and not as the run does; or what it says is no such number.
    """
    reward = columns.get("reward")
    if reward is None or reward.ndim != 1 or reward.dtype.kind not in "fiu":
        return columns, True  # refused as no rewards
    if not {REWARD_SCALE, REWARD_CLIP} & columns.keys():
        return columns, VERSION not in columns
    scales = _numbers(name, columns, REWARD_SCALE, len(reward), default=1.0)
    clips = _numbers(name, columns, REWARD_CLIP, len(reward), default=0.0)
    if not scales.all() or (clips < 0.0).any():
        why = f"its column {REWARD_SCALE!r} has a 0, or {REWARD_CLIP!r} a number below 0"
        raise DataSetError(name, why, "store what was done to its rewards, or neither of them")
    if np.allclose(scales, scale, atol=0.0) and np.allclose(clips, clip, atol=0.0):
        return columns, False
    if clips.any():
        row = int(np.flatnonzero(clips)[0])
        theirs = f"env.reward_scale={scales[row]:g} env.reward_clip={clips[row]:g}"
        why = f"its rewards were made with {theirs}, and what was clipped is lost"
        raise DataSetError(name, why, f"set {theirs}, or record it with env.reward_clip=0")
    return {**columns, "reward": reward / scales}, True


def _numbers(
    name: str, columns: Mapping[str, NDArray[np.generic]], key: str, rows: int, default: float
) -> NDArray[np.float64]:
    """A column of finite numbers ``(N,)``; `default` where it is not there."""
    column = columns.get(key)
    if column is None:
        return np.full(rows, default)
    if column.shape != (rows,) or column.dtype.kind not in "fiu" or not np.isfinite(column).all():
        why = f"its column {key!r} is {column.dtype} {column.shape}, or not finite"
        raise DataSetError(name, why, f"store {rows:,} numbers, one for each reward")
    return column.astype(np.float64)
