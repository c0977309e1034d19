"""A run's replay, as its configuration says: where it lies, what a row of it is, who must wait.

The check before the start, the gateway and the trainer all ask here, so that they agree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vedette_rl.core import row_dtype
from vedette_rl.replay.limiter import Limiter, limiter_of
from vedette_services.config.run_config import RunConfig


def ring_dtype(row: np.dtype[Any]) -> np.dtype[Any]:
    """A transition's row as the replay holds it: with which version it was made, and by whom.

    Args:
        row: of a transition, as it travels.
    """
    assert row.fields is not None, "a row dtype is structured"
    fields = [(name, field[0].base, field[0].shape) for name, field in row.fields.items()]
    return row_dtype(
        [
            *fields,
            ("version", np.dtype("<i8"), ()),
            ("manager", np.dtype("<i4"), ()),
            ("actor", np.dtype("<i4"), ()),
        ]
    )


def replay_directory(config: RunConfig, out: Path) -> Path:
    """Where the replay lies: in the run directory, unless `replay.directory` names another place.

    Args:
        out: the run directory.
    """
    return Path(config.replay.directory or out / "replay")


def run_limiter(config: RunConfig) -> Limiter:
    """The run's limiter; gateway and trainer ask it the same questions, each about its own side.

    Raises:
        LimiterDeadlockError: both sides would wait for each other.
    """
    return limiter_of(
        config.replay,
        usual=config.agent.usual_samples_per_insert,
        min_size=config.learner.warmup_period,
        batch_size=config.agent.batch_size,
        insert_rows=config.actors.n_buffer,
    )
