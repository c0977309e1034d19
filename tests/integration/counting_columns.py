"""An agent and a step processor with columns of their own, for the counting environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import vedette_rl.agents.dqn.policy as dqn
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.core import Columns, Policy, RowColumn, Step
from vedette_rl.envs.spaces import Spaces
from vedette_rl.steps import NStep

AGENT, STEPS = f"{__name__}:Seeing", f"{__name__}:Summing"


class SeeingPolicy:
    """DQN's policy, which keeps what it saw."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self._seen = np.empty(0)
        self.sync_model = inner.sync_model

    def act(self, obs: Columns, *, explore: bool, begins: Any = None) -> NDArray[Any]:
        self._seen = obs["obs"].copy()
        return self._inner.act(obs, explore=explore)

    def acted_columns(self) -> Columns:
        return {"seen": self._seen}


def build_policy(config: DqnConfig, spaces: Spaces, **how: Any) -> SeeingPolicy:
    return SeeingPolicy(dqn.KIND.build_policy(config, spaces, **how))


class SeeingConfig(DqnConfig):
    name: str = AGENT


Seeing = replace(
    dqn.KIND,
    name=AGENT,
    config=SeeingConfig,
    build_policy=build_policy,
    columns=lambda config, spaces: [RowColumn("seen", shape=(2,))],
)


class Summing(NStep):
    """Adds the sum of what was seen before and after, in twice the precision."""

    @staticmethod
    def columns(spaces: Spaces) -> Sequence[RowColumn]:
        return [RowColumn("sum", "float64", (2,))]

    def process(self, step: Step) -> Columns:
        return _summed(super().process(step))

    def flush(self) -> Columns:
        return _summed(super().flush())


def _summed(rows: Columns) -> Columns:
    return {**rows, "sum": rows["obs"] + rows["next_obs"].astype(np.float64)}


def wrong_rows(rows: Columns) -> int:
    """Rows whose own columns are not those that were made with them."""
    right = (rows["seen"] == rows["obs"]).all(1)
    right &= (rows["sum"] == rows["obs"] + rows["next_obs"].astype(np.float64)).all(1)
    return int((~right).sum())
