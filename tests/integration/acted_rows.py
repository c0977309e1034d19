"""What actors with memory say of their rows, computed again from the models that they acted on.

Each row of a replay names the model and its epoch. Where a checkpoint has that model, the row's
`log_prob` and the memory of the row behind it must come out again; all rows of an environment must
follow one another, and remember nothing where an episode begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import vedette
from vedette_rl.agents.recurrent_policy import RecurrentPolicy
from vedette_rl.core.columns import Columns
from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing.memory_tasks import RepeatFirst
from vedette_services.run.finished import FinishedRun, build_greedy_policy

ALLOWED = ("vedette_rl",)


class ActedRows(NamedTuple):
    """What was found in a replay of `RepeatFirst`.

    Args:
        rows: in the replay.
        missing: rows whose successor in the same environment is not the next step, or whose
            episode goes on behind its end, or ends within.
        remembered: the largest number of a memory at the begin of an episode.
        models: how many models were computed again.
        log_prob: the largest difference of a log-probability.
        memory: the largest difference of a number remembered.
    """

    rows: int
    missing: int
    remembered: float
    models: int
    log_prob: float
    memory: float

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows, {self.missing} missing; {self.models} models computed again: "
            f"log-probabilities differ by {self.log_prob:.1e}, memories by {self.memory:.1e}"
        )


def acted_rows(run: Path) -> ActedRows:
    """Compare the replay of a run of discrete actions with its checkpoints."""
    exported = run.with_name(f"{run.name}-rows.npz")
    vedette.export_replay(run, exported, allow_import=ALLOWED)
    with np.load(exported) as columns:
        rows = dict(columns)
    exported.unlink()
    order = np.lexsort((rows["t"], rows["env"], rows["actor"], rows["manager"]))
    rows = {name: column[order] for name, column in rows.items()}
    over = rows["terminated"] | rows["truncated"]
    follows = np.zeros(len(over), bool)  # the next row is of the same environment
    follows[:-1] = np.all(
        [rows[n][1:] == rows[n][:-1] for n in ("manager", "actor", "env")], axis=0
    )
    goes_on = np.flatnonzero(follows)
    missing = (rows["t"][goes_on + 1] != rows["t"][goes_on] + 1) | (
        rows["begins"][goes_on + 1] != over[goes_on]
    )
    found = list(_differences(run, rows, follows & ~over))
    return ActedRows(
        rows=len(over),
        missing=int(missing.sum()),
        remembered=float(np.abs(rows["memory"][rows["begins"]]).max()),
        models=len(found),
        log_prob=max((difference for difference, _ in found), default=0.0),
        memory=max((difference for _, difference in found), default=0.0),
    )


def _differences(
    run: Path, rows: Columns, joined: NDArray[np.bool_]
) -> Iterator[tuple[float, float]]:
    """Of each model that a checkpoint has: the largest of a log-probability, and of a memory."""
    finished = FinishedRun.open(run, ALLOWED)
    task = RepeatFirst()
    policy = build_greedy_policy(finished.config, Spaces(task.observation_space, task.action_space))
    assert isinstance(policy, RecurrentPolicy)
    for checkpoint in sorted((run / "checkpoints").iterdir()):
        epoch = json.loads((checkpoint / "meta.json").read_text())["epoch"]
        acted = (rows["version"] == int(checkpoint.name)) & (rows["epoch"] == epoch)
        at = np.flatnonzero(acted)
        if not len(at):
            continue
        policy.sync_model(finished.load_model(checkpoint.name).model)
        policy.recall(rows["memory"][at])
        obs = {"obs": rows["obs"][at]}
        policy.act(obs, explore=False)
        logits = policy.inner.network(obs).astype(np.float64)
        log_prob = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        acted_log_prob = log_prob[np.arange(len(at)), rows["action"][at]]
        goes_on = joined[at]
        yield (
            float(np.abs(acted_log_prob - rows["log_prob"][at]).max()),
            float(np.abs(policy.memory[goes_on] - rows["memory"][at[goes_on] + 1]).max()),
        )
