"""An agent whose policy has memory and a column of its own, and a step processor with another.

The environment shows the step within its episode, so every row proves both: `since` is what the
policy counted, and `twice` is made of what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sequence_agent
from numpy.typing import NDArray

import vedette_rl.agents.dqn.policy as dqn
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.kind import AgentKind
from vedette_rl.core import Columns, Policy, RowColumn, Step
from vedette_rl.envs.spaces import Spaces
from vedette_rl.steps import NStep

ENV = "vedette_rl.testing.inputs:ScriptedEnv"
STEP = 2  # of its observation: the step within the episode


class Remembering:
    """DQN's policy, which counts the steps of each episode."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self._count = np.zeros(0, np.int64)
        self.sync_model = inner.sync_model

    def act(self, obs: Columns, *, explore: bool, begins: Any = None) -> NDArray[Any]:
        rows = len(begins)
        count = np.resize(self._count, rows) + 1
        count[begins] = 0
        self._count = count
        return self._inner.act(obs, explore=explore)

    def acted_columns(self) -> Columns:
        return {"since": self._count}


def build_policy(config: DqnConfig, spaces: Spaces, **how: Any) -> Remembering:
    return Remembering(dqn.KIND.build_policy(config, spaces, **how))


def columns(config: DqnConfig, spaces: Spaces) -> Sequence[RowColumn]:
    return [RowColumn("since", "int64", low=0, high=10_000)]


NAME = f"{__name__}:Memory"


class MemoryConfig(DqnConfig):
    name: str = NAME


Memory = replace(
    dqn.KIND, name=NAME, config=MemoryConfig, build_policy=build_policy, columns=columns
)
Undeclared = replace(Memory, columns=lambda config, spaces: ())
Forgotten = replace(
    Memory,
    columns=lambda config, spaces: [*columns(config, spaces), RowColumn("log_prob")],
)


class OfSequencesConfig(MemoryConfig):
    learns_sequences = True
    name: str = f"{__name__}:OfSequences"


OfSequences = replace(
    Memory,
    name=OfSequencesConfig.model_fields["name"].default,
    config=OfSequencesConfig,
    build_agent=sequence_agent.build_agent,
    columns=lambda config, spaces: [RowColumn("since", "int64", low=0, high=10_000, first=True)],
)


def giving(change: Callable[[NDArray[Any]], Any]) -> AgentKind:
    """The agent whose policy gives its column otherwise."""

    class Otherwise(Remembering):
        def acted_columns(self) -> Columns:
            return {"since": change(self._count)}

    def build(config: DqnConfig, spaces: Spaces, **how: Any) -> Otherwise:
        return Otherwise(dqn.KIND.build_policy(config, spaces, **how))

    return replace(Memory, build_policy=build)


OneRow = giving(lambda count: count[:1])
FewRows = giving(lambda count: count[:-1])
Single = giving(lambda count: int(count[0]))


class TwiceSeen(NStep):
    """Adds a column of the whole observation, doubled."""

    @staticmethod
    def columns(spaces: Spaces) -> Sequence[RowColumn]:
        return [RowColumn("twice", "float32", spaces.observation.shape or ())]

    def process(self, step: Step) -> Columns:
        return self._with_own(super().process(step))

    def flush(self) -> Columns:
        return self._with_own(super().flush())

    def _with_own(self, rows: Columns) -> Columns:
        return {**rows, "twice": 2 * rows["obs"]}


class OfAnotherShape(TwiceSeen):
    def _with_own(self, rows: Columns) -> Columns:
        return {**rows, "twice": rows["obs"][:, 0]}


class NotFlushed(TwiceSeen):
    def flush(self) -> Columns:
        return NStep.flush(self)


class OfOneRow(TwiceSeen):
    def _with_own(self, rows: Columns) -> Columns:
        return {**rows, "twice": 2 * rows["obs"][:1]}


def assert_rows_are_right(rows: Columns) -> None:
    """Check each row's own columns against what it saw."""
    assert len(rows["obs"])
    np.testing.assert_array_equal(rows["since"], rows["obs"][:, STEP])
    np.testing.assert_array_equal(rows["twice"], 2 * rows["obs"])
